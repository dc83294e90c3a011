"""Arrays as a model or a script gives them -> those that the answer's media type has: before `encode`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES, Outputs
from tfs_proxy.errors import NotAcceptable
from tfs_proxy.payload import media_types as media


def portable(outputs: Mapping[str, npt.ArrayLike], media_type: str, *, has_complex: bool = False) -> Outputs:
    """Arrays of native numbers, and of ``bytes`` for text; bfloat16 becomes float32.

    Raises NotAcceptable for what ``media_type`` can't carry: dates, objects, and complex numbers unless it
    ``has_complex``.
    """
    return {
        name: _portable(name, np.asarray(array), media_type, has_complex=has_complex)
        for name, array in outputs.items()
    }


def _portable(name: str, array: npt.NDArray[Any], media_type: str, *, has_complex: bool) -> npt.NDArray[Any]:
    kind = array.dtype.kind
    if kind in "biuf":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if kind in "SUO":
        return _strings(name, array, media_type)
    if kind == "c" and has_complex:
        return array
    raise NotAcceptable(
        f'The output "{name}" is {array.dtype.name}, which {media_type} can\'t carry'
        + (f": ask for {media.NPY} or {media.NPZ}." if kind == "c" else ".")
    )


def _strings(name: str, array: npt.NDArray[Any], media_type: str) -> npt.NDArray[Any]:
    if array.dtype == BYTES and all(type(value) is bytes for value in array.ravel()):
        return array
    strings = []
    for value in array.ravel().tolist():
        if not isinstance(value, str | bytes):
            raise NotAcceptable(
                f'The output "{name}" has a {type(value).__name__}, which {media_type} can\'t carry.'
            )
        strings.append(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)
    return np.array(strings, BYTES).reshape(array.shape)
