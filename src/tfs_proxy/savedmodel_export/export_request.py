"""What the export process is asked and what it answers, as JSON; `child` sends it, ``__main__`` reads it."""

import json
from pathlib import Path
from typing import Self

from msgspec import Struct, convert, to_builtins

from tfs_proxy.savedmodel_export.preprocessing import Preprocessing

GIGABYTE = 1024**3


class ExportRequest(Struct, frozen=True):
    """Write a SavedModel of ``source`` into the folder ``target``, which must not exist yet.

    ``source`` is a .keras or .h5 file, or a SavedModel folder that gets signatures. ``allow_code`` lets a
    Keras file run the code in it. ``preprocessing`` describes signatures to add.
    ``max_bytes`` is how large a Keras file's contents may be.
    """

    source: Path
    target: Path
    allow_code: bool = False
    preprocessing: Preprocessing | None = None
    max_bytes: int = 64 * GIGABYTE

    def to_json(self) -> str:
        """The request as text."""
        return json.dumps(to_builtins(self, enc_hook=str))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The request that `to_json` wrote."""
        return convert(json.loads(text), cls, dec_hook=lambda _path, text: Path(text))


class ExportReport(Struct, frozen=True):
    """What the export process did; ``refusal`` is the sentence that says why it wrote nothing.

    ``exporter`` names the library that read the file, with its version; ``warnings`` are sentences.
    ``inputs`` are the names of a Keras model's inputs, if they are a list.
    """

    exporter: str = ""
    warnings: tuple[str, ...] = ()
    refusal: str | None = None
    inputs: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The report as text."""
        return json.dumps(to_builtins(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The report that `to_json` wrote. Raises ValueError if it is not one."""
        return convert(json.loads(text), cls)
