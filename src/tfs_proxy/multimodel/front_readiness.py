"""Whether a run of many models is ready, whatever models there are: what `/ping` answers from."""

from tfs_proxy.supervisor.readiness import ENDED, Readiness


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

    def missing(self) -> str | None:
        """What is being restarted in the model servers of all; a model that has failed is another matter."""
        failed = [
            servable for servable, state in self.servables.items() if state.error and state.state == ENDED
        ]
        for servable in failed:
            self.forget(servable.model)
        return super().missing()
