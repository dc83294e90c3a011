"""Whether a run of many models is ready, whatever models there are: what `/ping` answers from."""

from tfs_proxy.supervisor.health.readiness import Readiness
from tfs_proxy.supervisor.health.servable_states import ExpectedVersion, ServableState


class FrontReadiness(Readiness):
    """The readiness of a run whose models come and go: what they all need decides, whatever models there are.

    ``is_shared`` says whether they need more than nginx and the gRPC router.
    """

    is_shared = False

    def reason(self) -> str | None:
        """Why requests can't be served now; None if they can."""
        reason = self.unready_processes()
        if reason is not None or not self.is_shared:
            return reason
        return self.missing() if self.heartbeats.fresh() else "no worker sends heartbeats"

    def _is_awaited(self, servable: ExpectedVersion, state: ServableState) -> bool:
        """One that has failed is its own model's matter alone."""
        return not state.failed and super()._is_awaited(servable, state)
