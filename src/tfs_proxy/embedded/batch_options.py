"""TF Serving's batching parameters: read at the start, and for each model that has its own.

docs/reference/tensorflow-serving.md has their meaning.
"""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.embedded.errors import invalid
from tfs_proxy.embedded.model_config import read_text
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.protos import BatchingParameters

OWN_FILE = "batching_params.pbtxt"
"""File in a version's folder, read if the flags allow it."""

_AT_LEAST = {
    "max_batch_size": 1,
    "batch_timeout_micros": 0,
    "max_enqueued_batches": 1,
    "num_batch_threads": 1,
}
_AT_MOST = 2**31 - 1
"""Limit of the batch op; TF Serving has 64 bits for these numbers."""


class BatchOptions(Struct, frozen=True):
    """Batching of a model's requests; ``num_batch_threads`` 0 is one for each core."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = 0
    allowed_batch_sizes: tuple[int, ...] = ()
    splits: bool = False
    max_execution_batch_size: int = 0

    @property
    def op_batch_sizes(self) -> list[int]:
        """The batch op's allowed sizes; with splitting its last one is the size of the pieces."""
        if not self.splits:
            return list(self.allowed_batch_sizes)
        most = self.max_execution_batch_size or self.max_batch_size
        allowed = self.allowed_batch_sizes or range(1, most)
        return [*(size for size in allowed if size < most), most]


def read_options(path: str) -> BatchOptions:
    """The options of a batching parameters file; defaults if none is named.

    A number beyond `_AT_MOST` is taken as that one. Raises SettingsError if the file can't be read, or its
    numbers do not fit together.
    """
    message = read_text(path, BatchingParameters()) if path else BatchingParameters()
    values = {name: getattr(message, name).value for name in _AT_LEAST if message.HasField(name)}
    for name, value in values.items():
        if value < _AT_LEAST[name]:
            raise SettingsError(f"{path}: {name} must be {_AT_LEAST[name]} or more; was {value}")
    options = BatchOptions(
        **{name: min(value, _AT_MOST) for name, value in values.items()},
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        splits=message.enable_large_batch_splitting.value,
        max_execution_batch_size=message.max_execution_batch_size.value,
    )
    _check(options, path)
    return options


def own_options(folder: Path, shared: BatchOptions) -> BatchOptions | None:
    """The options of a version's own file, with the threads that are shared; None if it has no file.

    Such a version is not batched. Raises ServingError if the file can't be used.
    """
    path = folder / OWN_FILE
    if not path.exists():
        return None
    try:
        return replace(read_options(str(path)), num_batch_threads=shared.num_batch_threads)
    except SettingsError as error:
        raise invalid(str(error)) from error


def _check(options: BatchOptions, path: str) -> None:
    sizes = options.allowed_batch_sizes
    if list(sizes) != sorted(set(sizes)) or (sizes and sizes[0] < 1):
        raise SettingsError(f"{path}: allowed_batch_sizes entries must be monotonically increasing")
    if options.splits and options.max_execution_batch_size > options.max_batch_size:
        raise SettingsError(f"{path}: max_execution_batch_size is larger than max_batch_size.")
    lasts = {options.max_batch_size}
    if options.splits:
        lasts.add(options.max_execution_batch_size)
    if sizes and sizes[-1] not in lasts:
        raise SettingsError(
            f"{path}: Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
            f"{sizes[-1]}; expected {options.max_batch_size}"
        )
