"""HTTP/2 as gRPC needs it, as pure functions and values: what `grpc_client` and `grpc_server` share."""
