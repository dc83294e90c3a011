"""The batch sizes that a model server with these settings runs, each of which a first request may have."""

from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.report.serving_flags import ServingFlags
from tfs_proxy.settings import Settings

FLAG = "batching_parameters_file"
MOST_SIZES = 64
"""More sizes than that are not all recorded: the load of a version waits for every request."""


def batch_sizes(settings: Settings) -> tuple[int, ...]:
    """Those that the user's own file allows, else all up to the largest batch; 1 if nothing is batched.

    Raises SettingsError if the file can't be read.
    """
    own_file = ServingFlags(settings.extra_args).value(FLAG)
    if own_file:
        allowed = _allowed_in(own_file)
        if allowed:
            return allowed
    if not settings.enable_batching:
        return (1,)
    most = settings.max_batch_size
    if most <= MOST_SIZES:
        return tuple(range(1, most + 1))
    powers = (1 << exponent for exponent in range(most.bit_length()))
    return (*(size for size in powers if size < most), most)


def _allowed_in(own_file: str) -> tuple[int, ...]:
    from google.protobuf import text_format

    from tfs_proxy.protos import POOL, BatchingParameters

    try:
        text = Path(own_file).read_text(encoding="utf-8")
        parameters = text_format.Parse(text, BatchingParameters(), descriptor_pool=POOL)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise SettingsError(f"--{FLAG}={own_file} can't be read: {error}.") from None
    return tuple(sorted({size for size in parameters.allowed_batch_sizes if size > 0}))[:MOST_SIZES]
