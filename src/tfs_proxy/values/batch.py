"""Arrays by input name: every input format decodes to them, and every upstream takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct


class Batch(Struct, frozen=True):
    """Decoded records: one array per input, the first axis of each counts the records.

    Strings and bytes are object arrays of ``bytes``; DT_BFLOAT16, which numpy lacks, is float32
    here, rounded when it is sent. ``records`` is how many records the client sent: that many
    come back. ``is_bare`` says that the arrays are one record without an axis that counts it.
    ``base64_form`` tells a client how JSON carries bytes where the request came in.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    records: int
    is_bare: bool = False
    base64_form: str = 'as {"b64": "..."}'


class Examples(Struct, frozen=True):
    """Records for classify and regress, which take features by name and no tensors.

    A feature is a JSON number, string or ``{"b64": ...}``, or a list of one of them: the model's
    graph, not the signature, says which features there are.
    """

    features: Sequence[Mapping[str, Any]]

    @property
    def records(self) -> int:
        return len(self.features)


Outputs = Mapping[str, npt.NDArray[Any]]
"""Tensors by output name, as a model server gave them."""

BYTES = np.dtype(object)
"""Dtype of arrays of strings: their elements are ``bytes``."""
