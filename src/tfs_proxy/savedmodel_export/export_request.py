"""What the export process is asked and what it answers, as JSON; `child` sends it, ``__main__`` reads it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

GIGABYTE = 1024**3


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Write a SavedModel of ``source`` into the folder ``target``, which must not exist yet.

    ``source`` is a .keras or .h5 file, or a SavedModel folder that gets signatures. ``allow_code`` lets a
    Keras file run the code in it. ``preprocessing`` describes signatures to add, as `Preprocessing` writes
    itself. ``max_bytes`` is how large a Keras file's contents may be.
    """

    source: Path
    target: Path
    allow_code: bool = False
    preprocessing: Mapping[str, Any] | None = None
    max_bytes: int = 64 * GIGABYTE

    def to_json(self) -> str:
        """The request as text."""
        return json.dumps(asdict(self) | {"source": str(self.source), "target": str(self.target)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The request that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**fields | {"source": Path(fields["source"]), "target": Path(fields["target"])})


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What the export process did; ``refusal`` is the sentence that says why it wrote nothing.

    ``exporter`` names the library that read the file, with its version; ``warnings`` are sentences.
    """

    exporter: str = ""
    warnings: tuple[str, ...] = ()
    refusal: str | None = None

    def to_json(self) -> str:
        """The report as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The report that `to_json` wrote. Raises ValueError or TypeError if it is not one."""
        fields = json.loads(text)
        return cls(**fields | {"warnings": tuple(fields["warnings"])})
