"""The protocol's names of datatypes, TensorFlow's, and the arrays that travel through a `Batch`: a table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from tfs_proxy.batch import BYTES
from tfs_proxy.errors import BadInput, from_client
from tfs_proxy.signature import TensorSpec
from tfs_proxy.wire.dtypes import ARRAY_TYPES


class Datatype(Struct, frozen=True):
    """One row: ``name`` is the protocol's, ``tensorflow`` TensorFlow's (``DT_FLOAT``).

    ``array`` is the dtype of arrays in a `Batch`, ``item_bytes`` the size of an element among raw bytes,
    None if each element says its own. ``has_json`` says whether JSON carries it (contract: FP16 and BF16
    travel as raw bytes only).
    """

    name: str
    tensorflow: str
    array: np.dtype[Any]
    item_bytes: int | None
    has_json: bool = True

    @property
    def config_name(self) -> str:
        """What Triton's model configuration calls it: ``TYPE_FP32``, and ``TYPE_STRING`` for BYTES."""
        return f"TYPE_{'STRING' if self.array == BYTES else self.name}"


def _row(name: str, tensorflow: str, *, has_json: bool = True) -> Datatype:
    array = ARRAY_TYPES[tensorflow]
    return Datatype(name, tensorflow, array, None if array == BYTES else array.itemsize, has_json)


_ROWS = (
    _row("BOOL", "DT_BOOL"),
    _row("UINT8", "DT_UINT8"),
    _row("UINT16", "DT_UINT16"),
    _row("UINT32", "DT_UINT32"),
    _row("UINT64", "DT_UINT64"),
    _row("INT8", "DT_INT8"),
    _row("INT16", "DT_INT16"),
    _row("INT32", "DT_INT32"),
    _row("INT64", "DT_INT64"),
    _row("FP16", "DT_HALF", has_json=False),
    Datatype("BF16", "DT_BFLOAT16", ARRAY_TYPES["DT_BFLOAT16"], 2, has_json=False),
    _row("FP32", "DT_FLOAT"),
    _row("FP64", "DT_DOUBLE"),
    _row("BYTES", "DT_STRING"),
)

DATATYPES: Mapping[str, Datatype] = {row.name: row for row in _ROWS}
"""By the protocol's name."""

_BY_TENSORFLOW: Mapping[str, Datatype] = {row.tensorflow: row for row in _ROWS}
_BY_ARRAY: Mapping[np.dtype[Any], Datatype] = {row.array: row for row in _ROWS if row.name != "BF16"}


def datatype_named(name: object, subject: str) -> Datatype:
    """The datatype that a client names; raises BadInput, which begins with ``subject``."""
    known = DATATYPES.get(name) if isinstance(name, str) else None
    if known is None:
        raise BadInput(
            f"{subject} has the datatype {_shown(name)}: it must be one of {', '.join(DATATYPES)}."
        )
    return known


def datatype_of(spec: TensorSpec) -> Datatype | None:
    """The datatype of a model's tensor; None for those that the protocol lacks, such as complex numbers."""
    return _BY_TENSORFLOW.get(spec.dtype)


def datatype_of_array(dtype: np.dtype[Any]) -> Datatype | None:
    """The datatype of an array without a signature; text of any width is BYTES."""
    return DATATYPES["BYTES"] if dtype.kind in "SU" else _BY_ARRAY.get(dtype.newbyteorder("="))


def _shown(name: object) -> str:
    return f'"{from_client(name[:40])}"' if isinstance(name, str) else "that is not a string"
