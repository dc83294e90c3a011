"""Between web and a model server with the models of many archives: requests reach their own alone."""

from msgspec.structs import replace

from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.signature import Target
from tfs_proxy.upstream.around import Around
from tfs_proxy.upstream.interface import Upstream
from tfs_proxy.wire.error_body import error_body

NOT_FOUND = 404


class OfOneArchive(Around):
    """Asks ``upstream`` for the models of ``deployment`` alone.

    A target may have the name that its model has in the archive. Other models are 404, as if the model
    server did not have them.
    """

    def __init__(self, upstream: Upstream, deployment: Deployment) -> None:
        super().__init__(upstream)
        self._deployment = deployment

    def _asked(self, target: Target) -> Target:
        name = self._deployment.served_name(target.model)
        if name not in self._deployment.models:
            raise UpstreamRefused(NOT_FOUND, error_body(f"Servable not found for request: Latest({name})"))
        return target if name == target.model else replace(target, model=name)
