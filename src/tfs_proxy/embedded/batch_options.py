"""TF Serving's batching parameters as values: read at the start, before TensorFlow is imported."""

from dataclasses import dataclass

from tfs_proxy.embedded.model_config import read_text
from tfs_proxy.errors import SettingsError
from tfs_proxy.protos import BatchingParameters


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """TF Serving's batching parameters with its defaults (contract 3.4)."""

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
        if self.allowed_batch_sizes or not self.splits:
            return list(self.allowed_batch_sizes)
        return list(range(1, (self.max_execution_batch_size or self.max_batch_size) + 1))


def read_options(path: str) -> BatchOptions:
    """The options of a batching parameters file; defaults where none is named.

    Raises SettingsError where it can't be read, or its numbers do not fit together.
    """
    message = read_text(path, BatchingParameters()) if path else BatchingParameters()
    given = {
        name: getattr(message, name).value
        for name in ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
        if message.HasField(name)
    }
    options = BatchOptions(
        **given,
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        splits=message.enable_large_batch_splitting.value,
        max_execution_batch_size=message.max_execution_batch_size.value,
    )
    _check(options, path)
    return options


def _check(options: BatchOptions, path: str) -> None:
    if options.max_batch_size < 1 or options.max_enqueued_batches < 1 or options.batch_timeout_micros < 0:
        raise SettingsError(f"{path}: max_batch_size and max_enqueued_batches must be positive.")
    sizes = options.allowed_batch_sizes
    if list(sizes) != sorted(set(sizes)):
        raise SettingsError(f"{path}: allowed_batch_sizes entries must be in increasing order.")
    last = options.max_execution_batch_size if options.splits else options.max_batch_size
    if sizes and last and sizes[-1] != last:
        name = "max_execution_batch_size" if options.splits else "max_batch_size"
        raise SettingsError(f"{path}: the last entry of allowed_batch_sizes must be {name}, {last}.")
    if options.splits and options.max_execution_batch_size > options.max_batch_size:
        raise SettingsError(f"{path}: max_execution_batch_size is larger than max_batch_size.")
