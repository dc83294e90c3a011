"""The exception tree: raised in every room, turned into HTTP or an exit status only at the edges."""

import re
from collections.abc import Sequence
from typing import TypedDict

_BEGIN = "\ue000"
_END = "\ue001"
_FROM_CLIENT = re.compile(f"{_BEGIN}[^{_END}]*{_END}?")
_MARKS = str.maketrans("", "", _BEGIN + _END)


def from_client(text: object) -> str:
    """Mark a client's text in the sentence of a RequestError, so that its ``reason`` leaves the text out."""
    return f"{_BEGIN}{str(text).translate(_MARKS)}{_END}"


Place = tuple[int | str, ...]
"""Way to a value of a body from the outside in: records and elements, counted from 0, and names."""


class Fault(TypedDict):
    """One fault of a body: its place, and a sentence about it."""

    loc: Place
    msg: str


class TfsProxyError(Exception):
    """The root of every error that this package raises on purpose."""


class StopServing(TfsProxyError):
    """The run can't go on."""

    exit_status = 1

    def __init_subclass__(cls, exit_status: int = 0) -> None:
        cls.exit_status = exit_status or cls.exit_status


class SettingsError(StopServing, exit_status=2):
    """A variable or flag has a value that can't be used."""


class ArchiveError(StopServing, exit_status=2):
    """The model archive is refused or can't be fetched."""


class NoArchive(ArchiveError):
    """There is nothing at the path of the model archive."""


class DiscoveryError(StopServing, exit_status=2):
    """There is no servable model, or two share a name."""


class NoModelFound(DiscoveryError):
    """The archive has no SavedModel; its script may still be the model."""


class ExportError(StopServing, exit_status=2):
    """A model file is refused, or can't become a SavedModel."""


class RequirementsError(StopServing, exit_status=3):
    """The script's requirements can't be installed."""


class ScriptLoadError(StopServing, exit_status=3):
    """The script can't be imported, or has no handler.

    ``report`` is the traceback of its import, as text, if there is one; ``missing`` the module that an
    import statement did not find, or found without what it asks for.
    """

    def __init__(self, text: str, *, report: str = "", missing: str = "") -> None:
        super().__init__(text)
        self.report = report
        self.missing = missing
        if report:
            self.add_note(report)


class ModelLoadError(StopServing, exit_status=4):
    """The model server says why a version can't load, or ended while it loaded.

    ``ended_with`` is its exit status then, negative for a signal.
    """

    def __init__(self, text: str, *, ended_with: int | None = None) -> None:
        super().__init__(text)
        self.ended_with = ended_with


class NotEnoughResources(StopServing, exit_status=4):
    """A model does not fit with those that are loaded; HTTP has status 507 for it.

    ``missing_bytes`` is the memory that would have to be given back first; 0 if something else is short.
    """

    def __init__(self, text: str, missing_bytes: int = 0) -> None:
        super().__init__(text)
        self.missing_bytes = missing_bytes


class OtherProgramEnded(StopServing):
    """The run ends because another program did, whose exit status it takes over."""

    def __init__(self, text: str, exit_status: int) -> None:
        super().__init__(text)
        self.exit_status = exit_status


class ModelServerEnded(OtherProgramEnded):
    """The model server ended at its start, and has said why."""


class ProgramNotRun(OtherProgramEnded):
    """The program that the container was asked to run is not there, or can't be run."""


class Interrupted(StopServing, exit_status=130):
    """A signal stopped a command that would have ended by itself."""


class StartTimeout(StopServing, exit_status=5):
    """Something was not ready within the wait time."""


class ProcessGaveUp(StopServing, exit_status=6):
    """A process died more often than it may be restarted."""


class ServerLost(StopServing, exit_status=6):
    """No server listens at the address to which a transform job sends its records."""


class RequestError(TfsProxyError):
    """One request can't be answered; the text is for the client.

    ``reason`` is the same for the log, with ``…`` for each text of the client's: see `from_client`.
    """

    def __init__(self, text: object = "") -> None:
        super().__init__(str(text).translate(_MARKS))
        self.reason = _FROM_CLIENT.sub("…", str(text))

    @property
    def details(self) -> Sequence[Fault]:
        """Faults of the body whose places are known."""
        return ()


class BadInput(RequestError):
    """The client's body or header is malformed; ``loc`` is the place in the body, () if it is not known."""

    def __init__(self, text: object = "", loc: Place = ()) -> None:
        super().__init__(text)
        self.loc = loc

    @property
    def details(self) -> Sequence[Fault]:
        """The one fault, if its place is known."""
        return [{"loc": self.loc, "msg": str(self)}] if self.loc else []


class NotJson(BadInput):
    """The body is not JSON."""


class WrongType(BadInput):
    """A value of the client's body is not of a type that the signature's dtype takes."""


class ClientGone(RequestError):
    """The client has closed its connection, so that nobody waits for the answer any more."""


class ClientStalled(RequestError):
    """The client has stopped sending a body that is read in parts."""


class UnsupportedMediaType(RequestError):
    """No decoder reads the request's Content-Type."""


class NotAcceptable(RequestError):
    """The answer can't be given in any type that Accept lists."""


class PayloadTooLarge(RequestError):
    """The body is over the limit."""


class Overloaded(RequestError):
    """Too much else is being answered; the same request can be sent again later."""


class UnknownModel(RequestError):
    """No model of this name is loaded or being loaded."""


class AlreadyLoaded(RequestError):
    """A model of this name is loaded, or being loaded."""


class NameTaken(AlreadyLoaded):
    """A model of an archive would have a name that another archive's model has."""


class LoadFailed(RequestError):
    """A model could not be loaded, and neither its archive nor a lack of resources is to blame."""


class ModelNotReady(RequestError):
    """A model is loading, failing or leaving; the same request can be sent again later."""


class Draining(ModelNotReady):
    """All models are being unloaded, since the run ends."""


class ScriptFailure(RequestError):
    """The user's script raised, or returned something that is not an answer."""


class ScriptTimeout(RequestError):
    """The user's script did not answer before its deadline."""


class UpstreamError(RequestError):
    """The model server did not give an answer."""


class UpstreamUnavailable(UpstreamError):
    """The model server refused or broke the connection."""


class NotReached(UpstreamUnavailable):
    """No connection could be opened, so the request was not sent: it may go anywhere, or again."""


class UpstreamTimeout(UpstreamError):
    """The model server did not answer in time."""


class AnswerTooLarge(UpstreamError):
    """The server's answer is over the limit: what else there is of it was not read."""


class UpstreamRefused(UpstreamError):
    """The model server answered with an error of its own.

    ``status`` is its HTTP status code and ``body`` its JSON, both to be passed on unchanged.
    """

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the model server answered {status}")
        self.status = status
        self.body = body
