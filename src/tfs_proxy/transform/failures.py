"""Errors of single objects and of the run, raised while objects are read, sent and written."""

from msgspec import Struct
from msgspec.structs import asdict

from tfs_proxy.errors import TfsProxyError


class BadRecord(Struct, frozen=True):
    """A record that the server refused, or a position in an object that can't be read.

    ``name`` is the object's. ``record`` counts from 1, ``offset`` is in bytes of the decompressed object;
    both are None if the whole object is meant. ``status`` is the HTTP status, None if there is no answer.
    """

    name: str
    record: int | None
    offset: int | None
    status: int | None
    error: str

    def to_values(self) -> dict[str, object]:
        """As a JSON object."""
        values = asdict(self)
        return {"object": values.pop("name"), **values}

    def __str__(self) -> str:
        position = f", record {self.record} at byte {self.offset}" if self.record is not None else ""
        status = f"status {self.status}: " if self.status is not None else ""
        return f"{self.name}{position}: {status}{self.error}"


class ObjectFailed(TfsProxyError):
    """An object can't be transformed; others go on, and the command's exit status is 1."""

    def __init__(self, bad_record: BadRecord) -> None:
        super().__init__(str(bad_record))
        self.bad_record = bad_record


class StorageError(TfsProxyError):
    """An object can't be read or written; the text says why."""


class RunStopped(TfsProxyError):
    """The run was stopped: the next run does what is not finished."""

    def __init__(self) -> None:
        super().__init__("the run was stopped")
