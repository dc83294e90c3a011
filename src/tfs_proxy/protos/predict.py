"""ModelSpec and PredictResponse around arrays, as wire format: a tensor is copied once, into the message."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from tfs_proxy.protos import ModelSpec
from tfs_proxy.protos.tensors import to_pieces
from tfs_proxy.wire.protobuf_writer import map_field, message_field


def model_spec(
    name: str, version: int | None = None, label: str | None = None, signature: str | None = None
) -> bytes:
    """A serialized ModelSpec; neither version nor label means the newest version."""
    spec = ModelSpec(name=name, signature_name=signature or "")
    if version is not None:
        spec.version.value = version
    elif label is not None:
        spec.version_label = label
    return spec.SerializeToString()


def response_bytes(spec: bytes, outputs: Mapping[str, npt.NDArray[Any]], *, as_list: bool = True) -> bytes:
    """A serialized PredictResponse; ``as_list`` as in `to_pieces`."""
    tensors = {name: to_pieces(array, as_list=as_list) for name, array in outputs.items()}
    return b"".join([*map_field(1, tensors), *message_field(2, [spec])])
