"""Options and results of `pack`, which the command and `serve` share."""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct

from tfs_proxy.data.capture.record import CapturedRequest
from tfs_proxy.tools.export.preprocessing import Preprocessing


class Fill(Enum):
    """Kinds of numbers in requests that are made up."""

    ZEROS = "zeros"
    RANDOM = "random"


class WarmupOptions(Struct, frozen=True):
    """Requests to record.

    ``requests`` are a client's; without them requests are made from the signatures, one for each of
    ``batch_sizes``, whose numbers are ``fill``; () stands for the sizes that the settings allow. Sizes that
    a signature leaves open, but the first, are ``open_size``. ``signature`` None is ``serving_default``, or
    all if there is no such signature. ``version`` None are all versions.
    """

    requests: Sequence[CapturedRequest] = ()
    batch_sizes: tuple[int, ...] = ()
    fill: Fill = Fill.ZEROS
    open_size: int = 1
    signature: str | None = None
    version: int | None = None


class WarmedVersion(Struct, frozen=True):
    """A version with recorded requests in its ``folder``, and latencies in milliseconds.

    ``cold_ms`` is the first request's without recorded requests, ``warm_ms`` with them; ``median_ms`` is that
    of later ones.
    """

    model: str
    version: int
    folder: Path
    records: int
    cold_ms: float
    warm_ms: float
    median_ms: float


DEFAULT_PYTHONS = ("3.13",)
"""The Python of the image for CPUs (Dockerfile.cpu); the one for GPUs has 3.12."""


class LayoutOptions(Struct, frozen=True):
    """A model and what belongs to it, to be laid out as SageMaker wants it.

    ``script`` is a file or a folder, ``name`` and ``version`` None for those that the model itself has.
    Without ``wheels`` the packages of ``requirements`` are downloaded at each start, with it now, for
    ``pythons`` (``3.13``) on ``machine`` (``x86_64``). ``preprocessing`` goes into the model's graph.
    ``csv_columns`` is the order of columns of CSV without a header, between commas; None for that of a Keras
    model's list of inputs.
    """

    model: Path
    name: str | None = None
    version: int | None = None
    script: Path | None = None
    requirements: Path | None = None
    wheels: bool = False
    pythons: tuple[str, ...] = DEFAULT_PYTHONS
    machine: str = "x86_64"
    allow_code: bool = False
    preprocessing: Preprocessing | None = None
    csv_columns: str | None = None


class Packed(Struct, frozen=True):
    """A written archive: its size in bytes, the report on it and the warnings, as lines to show.

    ``warmed`` has the versions with recorded requests.
    """

    output: Path
    size: int
    report: tuple[str, ...]
    warnings: tuple[str, ...]
    warmed: tuple[WarmedVersion, ...] = ()
