"""What `pack` is asked for, and what it has done: values that the command and `serve` share."""

from pathlib import Path

from msgspec import Struct

from tfs_proxy.packing.warmup.options import WarmedVersion, WarmupOptions
from tfs_proxy.savedmodel_export.preprocessing import Preprocessing

DEFAULT_PYTHONS = ("3.13",)
"""The Python of the image for CPUs (Dockerfile.cpu); the one for GPUs has 3.12."""


class WheelOptions(Struct, frozen=True):
    """For which Pythons (``3.13``) and which machine (``x86_64``) wheels are downloaded."""

    pythons: tuple[str, ...] = DEFAULT_PYTHONS
    machine: str = "x86_64"


class LayoutOptions(Struct, frozen=True):
    """A model and what belongs to it, to be laid out as SageMaker wants it.

    ``script`` is a file or a folder, ``name`` and ``version`` None for those that the model itself has.
    ``wheels`` None leaves the packages of ``requirements`` to be downloaded at each start. ``preprocessing``
    goes into the model's graph. ``csv_columns`` is the order of columns of CSV without a header, between
    commas; None for that of a Keras model's list of inputs.
    """

    model: Path
    name: str | None = None
    version: int | None = None
    script: Path | None = None
    requirements: Path | None = None
    wheels: WheelOptions | None = None
    allow_code: bool = False
    preprocessing: Preprocessing | None = None
    csv_columns: str | None = None


class PackOptions(Struct, frozen=True):
    """A layout, the file to write it to, and which requests are recorded, if any."""

    layout: LayoutOptions
    output: Path
    warmup: WarmupOptions | None = None


class Packed(Struct, frozen=True):
    """A written archive: its size in bytes, the report on it and the warnings, as lines to show.

    ``warmed`` has the versions with recorded requests.
    """

    output: Path
    size: int
    report: tuple[str, ...]
    warnings: tuple[str, ...]
    warmed: tuple[WarmedVersion, ...] = ()
