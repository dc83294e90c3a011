"""bfloat16 without a library for it: as float32 here, as bits on the wire."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.protos import tensors
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.protobuf_writer import Piece

_QUIET_NAN = 0x7FC0


def to_bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """float32 ``[...]`` -> bits ``[...]``, rounded to the nearest, ties to even, as TensorFlow does."""
    values = np.asarray(array, np.float32)
    bits = values.view(np.uint32) if values.ndim else values.reshape(1).view(np.uint32).reshape(())
    # In 64 bits no value overflows into its sign.
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.asarray(np.where(np.isnan(values), _QUIET_NAN, rounded).astype(np.uint16))


def from_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Bits ``[n]`` -> float32 ``[n]``, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_pieces(array: npt.NDArray[Any]) -> list[Piece]:
    """A serialized TensorProto of DataType.DT_BFLOAT16 from float32, as pieces to be joined."""
    return tensors.to_pieces(to_bits(array), data_type=DataType.DT_BFLOAT16)
