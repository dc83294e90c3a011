"""Writer of a script's result as the HTTP answer: the last step of a request that a script answers."""

from typing import TYPE_CHECKING

import falcon

if TYPE_CHECKING:
    from tfs_proxy.serving.script.runner import ScriptReply


def write_reply(resp: falcon.Response, reply: "ScriptReply") -> None:
    """Answer with a script's reply, in pieces if it is a stream."""
    resp.status, resp.content_type = reply.status, reply.content_type
    for name, value in reply.headers.items():
        resp.append_header(name, value)
    if isinstance(reply.body, bytes):
        resp.data = reply.body
    else:
        resp.stream = reply.body
        # nginx would hold pieces back until its buffers are full.
        resp.set_header("X-Accel-Buffering", "no")
