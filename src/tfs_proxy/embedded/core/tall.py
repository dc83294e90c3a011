"""Tensors with more ranks than numpy arrays can have: 64 there, 254 in TensorFlow."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

MAX_RANK = 64
"""The most ranks that a numpy array can have."""

MAX_TENSOR_RANK = 254
"""The most that a tensor can have; TensorFlow's kernels end the process where an output would have more."""

MAX_TAKEN_RANK = 240
"""The most that a request's tensor can have: a model may add some of its own."""


class TallArray(np.ndarray[Any, np.dtype[Any]]):
    """A flat array that stands for one of ``tall_shape``."""

    tall_shape: tuple[int, ...]

    def __new__(cls, values: npt.NDArray[Any], shape: Sequence[int]) -> Self:
        """View values, row by row, as those of a tensor of this shape."""
        flat = np.asarray(values).reshape(-1).view(cls)
        flat.tall_shape = tuple(shape)
        return flat

    def __array_finalize__(self, source: object) -> None:
        self.tall_shape = getattr(source, "tall_shape", ())


def shape_of(array: npt.NDArray[Any]) -> tuple[int, ...]:
    """The shape of the tensor that an array stands for."""
    return array.tall_shape if isinstance(array, TallArray) else array.shape


def listed(sizes: Iterable[int]) -> str:
    """A shape as error texts have it, without its brackets."""
    return ",".join(map(str, sizes))
