"""What `warmup` is asked for, and what it has done: values that the command and `pack` share."""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct

from tfs_proxy.capture.replay import CapturedRequest


class Fill(Enum):
    """What numbers the made-up requests have."""

    ZEROS = "zeros"
    RANDOM = "random"


class WarmupOptions(Struct, frozen=True):
    """Which requests are recorded.

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
    """A version's requests in its ``folder``, and how long its first one took, in milliseconds.

    ``cold_ms`` without recorded requests, ``warm_ms`` behind them; ``median_ms`` is that of later ones.
    """

    model: str
    version: int
    folder: Path
    records: int
    cold_ms: float
    warm_ms: float
    median_ms: float
