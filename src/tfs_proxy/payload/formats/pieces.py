"""Large outputs in pieces of some records each, for the formats that write one record after the other."""

import math
from collections.abc import Iterator

from tfs_proxy.batch import Outputs

PIECE_ELEMENTS = 100_000
"""So many elements become text at once: as Python objects they take ten times what the text does."""


def by_records(outputs: Outputs) -> Iterator[Outputs]:
    """Outputs, each ``[records, ...]``, in parts of some records, each with about a piece's elements."""
    records = max((len(array) for array in outputs.values()), default=0)
    elements = sum(math.prod(array.shape[1:]) for array in outputs.values())
    step = max(1, PIECE_ELEMENTS // max(1, elements))
    if records <= step:
        yield outputs
        return
    for start in range(0, records, step):
        yield {name: array[start : start + step] for name, array in outputs.items()}
