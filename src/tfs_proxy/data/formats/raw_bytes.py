"""Batches of bodies that are one string, such as an image: for models that decode bytes themselves."""

import re
from collections.abc import Sequence

import numpy as np

from tfs_proxy.data.serving_json.documents import text_in
from tfs_proxy.data.shapes import fitted
from tfs_proxy.values.batch import BYTES, Batch
from tfs_proxy.values.errors import BadInput, UnsupportedMediaType
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.media_types import IMAGE, TEXT, MediaType

_LISTS_OF_ONE = 2
_LINE_END = re.compile(rb"\r?\n\Z")
_FETCH_HINT = (
    "A browser's fetch sends a string as text/plain unless its headers name a type: set 'Content-Type': "
    "'application/json' (or 'text/csv'). "
)


def string_input(signature: Signature) -> TensorSpec | None:
    """Input of a model that takes nothing but strings; else None."""
    if len(signature.inputs) != 1:
        return None
    (spec,) = signature.inputs.values()
    return spec if spec.dtype == "DT_STRING" else None


def strings_batch(strings: Sequence[bytes], signature: Signature) -> Batch:
    """One record per string, shaped ``[records]``, or ``[records, 1]`` if the signature has that."""
    ((name, spec),) = signature.inputs.items()
    array = np.array(strings, BYTES)
    lists = spec.shape is not None and len(spec.shape) == _LISTS_OF_ONE
    return fitted(Batch({name: array[:, None] if lists else array}, len(strings)), signature)


def decode_text(body: bytes, content_type: MediaType, signature: Signature) -> Batch:
    """Decode text, without a line end at its end, as `decode_bytes` does; raises BadInput if not UTF-8."""
    text_in(body)
    return decode_bytes(_LINE_END.sub(b"", body), content_type, signature)


def decode_bytes(body: bytes, content_type: MediaType, signature: Signature) -> Batch:
    """Decode the body as one record for the one string input of a model.

    Raises UnsupportedMediaType for other models, naming a script as the way, and BadInput for an
    empty body.
    """
    spec = string_input(signature)
    if spec is None:
        inputs = ", ".join(
            f'"{name}" ({declared.dtype})' for name, declared in sorted(signature.inputs.items())
        )
        hint = ""
        if content_type.type.startswith("image/") or content_type.type == IMAGE:
            hint = "tfs-proxy pack --decode-image HxW puts the decoding of pictures into a model. "
        elif content_type.type == TEXT:
            hint = _FETCH_HINT
        raise UnsupportedMediaType(
            f"{content_type.name} can't be converted for this model, which takes {inputs or 'nothing'}: only "
            f"a model with one input of strings takes such a body as it is. {hint}"
            "A script (code/inference.py with an input_handler) can turn it into arrays; or send "
            "application/x-npy or JSON."
        )
    if not body:
        raise BadInput("The body is empty.")
    return strings_batch([body], signature)
