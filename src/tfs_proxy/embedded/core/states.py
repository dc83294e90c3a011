"""What a model version goes through, as GetModelStatus tells it: set by the servable lifecycle."""

from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.wire.grpc_codes import GrpcCode


class VersionState(IntEnum):
    """ModelVersionStatus.State, by number."""

    UNKNOWN = 0
    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


NEXT = {
    VersionState.UNKNOWN: {VersionState.START},
    VersionState.START: {VersionState.LOADING, VersionState.END},
    VersionState.LOADING: {VersionState.AVAILABLE, VersionState.END},
    VersionState.AVAILABLE: {VersionState.UNLOADING},
    VersionState.UNLOADING: {VersionState.END},
    VersionState.END: {VersionState.START},
}
"""Which state may follow which; END starts over when the version is wanted again."""


class VersionStatus(Struct):
    """One version's state and the error of its last load, if it had one.

    It is ``called_off`` once it is no longer wanted, until it starts over: a load under way is discarded.
    """

    version: int
    state: VersionState = VersionState.UNKNOWN
    error: ServingError | None = None
    called_off: bool = False

    def change_state(self, state: VersionState, error: ServingError | None = None) -> None:
        """Go on to the next state; an error stays until a load succeeds or starts over."""
        if state not in NEXT[self.state]:
            raise ValueError(f"version {self.version} can't go from {self.state.name} to {state.name}")
        self.state = state
        self.error = error
        self.called_off &= state is not VersionState.START

    def copy(self) -> "VersionStatus":
        """As it is at this moment."""
        return replace(self)

    @property
    def may_start(self) -> bool:
        """Whether it is not loaded, and has not failed since it was wanted."""
        ended = self.state is VersionState.END and (self.error is None or self.called_off)
        return self.state is VersionState.UNKNOWN or ended

    @property
    def failed(self) -> bool:
        """Whether its last attempt has failed."""
        return self.state is VersionState.END and not self.may_start

    @property
    def untried(self) -> bool:
        """Whether it is on its way in, and no attempt has failed so far."""
        return self.state < VersionState.AVAILABLE and self.error is None

    @property
    def code(self) -> GrpcCode:
        """The gRPC code that the status carries: OK until the version has ended, whatever tries it takes."""
        return self.error.code if self.error and self.state is VersionState.END else GrpcCode.OK

    @property
    def message(self) -> str:
        """The text that goes with `code`."""
        return self.error.text if self.error and self.state is VersionState.END else ""
