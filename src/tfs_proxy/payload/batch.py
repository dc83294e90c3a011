"""What every input format decodes to, and every upstream takes: arrays by input name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Batch:
    """Decoded records: one array per input, the first axis of each counts the records.

    Strings and bytes are object arrays of ``bytes``. ``records`` is how many records the client
    sent: that many come back.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    records: int


Outputs = Mapping[str, npt.NDArray[Any]]
"""Tensors by output name, as a model server gave them."""

BYTES = np.dtype(object)
"""The dtype of arrays of strings: their elements are ``bytes``."""
