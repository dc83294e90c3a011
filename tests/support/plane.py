"""One request through the data plane, as `/invocations` sends it there."""

from tfs_proxy.serving.bodies import Body
from tfs_proxy.serving.plane import DataPlane, EncodedAnswer
from tfs_proxy.serving.upstream.interface import Upstream
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.signature import Target


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
