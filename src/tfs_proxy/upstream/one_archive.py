"""Between web and a model server with the models of many archives: requests reach their own alone."""

from dataclasses import replace

from tfs_proxy.deployment import Deployment, Instance
from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.interface import JSON_HEADERS, ModelAnswer, Records, Upstream
from tfs_proxy.wire.error_body import error_body

NOT_FOUND = 404


class OfOneArchive:
    """`tfs_proxy.upstream.interface.Upstream` around another, for the models of ``deployment``.

    A target may have the name that its model has in the archive. Other models are 404, as if the model
    server did not have them.
    """

    def __init__(self, upstream: Upstream, deployment: Deployment) -> None:
        self._upstream = upstream
        self._deployment = deployment

    def choose(self) -> Instance:
        """The instance that the next request goes to."""
        return self._upstream.choose()

    def signature(self, target: Target) -> Signature:
        """The target's signature; see the interface for what it raises."""
        return self._upstream.signature(self._served(target))

    def predict(
        self,
        target: Target,
        records: Records,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
        as_json: bool = False,
    ) -> ModelAnswer:
        """Send records; see the interface for what it raises."""
        try:
            served = self._served(target)
        except UpstreamRefused as refused:
            return ModelAnswer(refused.status, refused.body, JSON_HEADERS)
        return self._upstream.predict(
            served, records, instance=instance, timeout_seconds=timeout_seconds, as_json=as_json
        )

    def close(self) -> None:
        """Give connections back; idempotent."""
        self._upstream.close()

    def _served(self, target: Target) -> Target:
        name = self._deployment.served_name(target.model)
        if name not in self._deployment.models:
            raise UpstreamRefused(NOT_FOUND, error_body(f"Servable not found for request: Latest({name})"))
        return target if name == target.model else replace(target, model=name)
