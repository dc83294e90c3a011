"""ModelSpec and PredictResponse around arrays, as wire format: a tensor is copied once, into the message."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from tfs_proxy.protos.tensors import to_pieces
from tfs_proxy.wire.protobuf_writer import field, map_field, message_field, varint_field

_NAME, _VERSION, _SIGNATURE, _LABEL = 1, 2, 3, 4


def model_spec(
    name: str, version: int | None = None, label: str | None = None, signature: str | None = None
) -> bytes:
    """A serialized ModelSpec; neither version nor label means the newest version."""
    parts = [_text_field(_NAME, name), _text_field(_SIGNATURE, signature or "")]
    if version is not None:
        parts.append(field(_VERSION, varint_field(1, version) if version else b""))
    elif label is not None:
        parts.append(field(_LABEL, label.encode()))
    return b"".join(parts)


def _text_field(number: int, text: str) -> bytes:
    return field(number, text.encode()) if text else b""


def response_bytes(spec: bytes, outputs: Mapping[str, npt.NDArray[Any]], *, as_list: bool = True) -> bytes:
    """A serialized PredictResponse; ``as_list`` as in `to_pieces`."""
    tensors = {name: to_pieces(array, as_list=as_list) for name, array in outputs.items()}
    return b"".join([*map_field(1, tensors), *message_field(2, [spec])])
