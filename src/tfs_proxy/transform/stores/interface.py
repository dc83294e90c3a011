"""Interfaces to where objects are read and outputs are written; `local` and `s3` implement them."""

import io
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

OUT = ".out"
ERRORS = ".err"


class InputObject(Struct, frozen=True):
    """One object to transform.

    ``address`` is its path or ``s3://`` address, ``name`` its path below the input prefix, with slashes.
    ``version`` changes when its content does: an ETag, or size and time. ``size`` is in bytes.
    """

    address: str
    name: str
    size: int
    version: str


OpenObject = Callable[[InputObject], io.RawIOBase]
"""Gives the stored bytes of an object. Raises StorageError."""


class OutputSink(Protocol):
    """One output being written: `commit` makes all of it visible, `abort` none."""

    def write(self, data: bytes) -> None:
        """Append ``data``. Raises StorageError."""

    def commit(self) -> None:
        """Make it visible. Raises StorageError if that fails; then it is not visible."""

    def abort(self) -> None:
        """Delete what was written; never raises StorageError."""


class OutputTarget(Protocol):
    """Writes outputs, and knows which are finished."""

    def prepare(self, items: list[InputObject]) -> None:
        """Delete what a killed run left of these objects' outputs.

        Raises SettingsError if one could not be written under its name.
        """

    def finished(self, fingerprint: str) -> dict[str, str]:
        """Names and versions of the objects that a job of this ``fingerprint`` finished."""

    def create(self, item: InputObject, ending: str, fingerprint: str) -> OutputSink:
        """Begin the output of ``item`` (``ending`` OUT) or its error file (ERRORS).

        Commit of an output records ``item`` as finished for ``fingerprint``. Raises StorageError.
        """

    def remove(self, name: str, ending: str) -> None:
        """Delete an earlier run's ``name`` + ``ending``, if there is one. Raises StorageError."""
