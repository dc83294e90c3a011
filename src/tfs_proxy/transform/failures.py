"""Why an object of a job can't be transformed: raised while one is read, sent or written."""

from dataclasses import asdict, dataclass

from tfs_proxy.errors import TfsProxyError


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that the server refused, or a place in an object that can't be read.

    ``name`` is the object's, ``record`` counts from 1 and ``offset`` is in bytes of the (decompressed)
    object; both are None where the whole object is meant. ``status`` is the HTTP status, None where
    there was no answer.
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
        place = f", record {self.record} at byte {self.offset}" if self.record is not None else ""
        status = f"status {self.status}: " if self.status is not None else ""
        return f"{self.name}{place}: {status}{self.error}"


class ObjectFailed(TfsProxyError):
    """One object can't be transformed; the others go on, and the job's exit status is not 0."""

    def __init__(self, why: BadRecord) -> None:
        super().__init__(str(why))
        self.why = why


class StorageError(TfsProxyError):
    """An object can't be read or written; the text says why."""


class RunStopped(TfsProxyError):
    """The run was told to stop: what is not finished is left for the next one."""
