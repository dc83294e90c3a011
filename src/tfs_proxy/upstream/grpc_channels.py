"""How a channel to a model server is set up, for the workers' calls and for the gRPC router's."""

OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
"""No limit of 4 MB: the model server has none either (docs/reference/tensorflow-serving.md).

A restarted one is found soon.

What grpc calls the least back-off is how long a connection may take: that stays at its own 20 seconds, as a
model server that is busy is not down.
"""

CONNECT_FAILED = "failed to connect"
"""What the text of an UNAVAILABLE has if no connection could be opened, so that nothing was sent."""
