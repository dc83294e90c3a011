"""What objects are read from and written to, in general; `local` and `s3` are the two that there are."""

import io
from dataclasses import dataclass
from typing import Protocol

OUT = ".out"
ERRORS = ".err"


@dataclass(frozen=True, slots=True)
class InputObject:
    """One object to transform.

    ``address`` says where it lies, ``name`` is its path under the input prefix, with slashes.
    ``version`` changes when its content does: an ETag, or size and time. ``size`` is in bytes.
    """

    address: str
    name: str
    size: int
    version: str


class ObjectSource(Protocol):
    """Where objects are read."""

    def open(self, item: InputObject) -> io.RawIOBase:
        """The stored bytes of ``item``. Raises StorageError."""


class OutputSink(Protocol):
    """One output in the making: all of it appears with `commit`, or nothing does."""

    def write(self, data: bytes) -> None:
        """Add to it. Raises StorageError."""

    def commit(self) -> None:
        """Let it appear. Raises StorageError, and then it does not."""

    def abort(self) -> None:
        """Leave nothing of it; never raises StorageError."""


class OutputTarget(Protocol):
    """Where outputs are written, and what is known to be finished there."""

    def check(self, items: list[InputObject]) -> None:
        """Raise SettingsError where an output could not be written under its name."""

    def prepare(self, items: list[InputObject]) -> None:
        """Clear away what a killed run has left of these objects' outputs. Raises SettingsError."""

    def finished(self, fingerprint: str) -> dict[str, str]:
        """Names of objects finished under the job ``fingerprint``, with the versions they were made from."""

    def create(self, name: str, fingerprint: str, version: str) -> OutputSink:
        """Begin ``name``.out, to be noted as finished for ``fingerprint`` and ``version`` on commit.

        Raises StorageError.
        """

    def create_errors(self, name: str) -> OutputSink:
        """Begin ``name``.err. Raises StorageError."""

    def remove(self, name: str, ending: str) -> None:
        """Remove what an earlier run left as ``name`` + ``ending`` (OUT or ERRORS), if anything.

        Raises StorageError.
        """
