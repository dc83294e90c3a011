"""One request through the data plane, as `/invocations` sends it there."""

from tfs_proxy.dataplane.bodies import Body
from tfs_proxy.dataplane.plane import DataPlane, EncodedAnswer
from tfs_proxy.deployment import Instance
from tfs_proxy.signature import Target
from tfs_proxy.upstream.interface import Upstream


def answer(
    upstream: Upstream,
    target: Target,
    body: bytes,
    content_type: str | None,
    accept: str | None,
    instance: Instance | None = None,
) -> EncodedAnswer:
    """Answer one body."""
    return DataPlane(upstream).answer(target, Body(body, content_type), accept, instance)
