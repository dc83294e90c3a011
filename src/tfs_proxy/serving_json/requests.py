"""TF Serving's requests to predict in JSON -> arrays by input name: its row form and its column form."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfs_proxy.batch import Batch
from tfs_proxy.errors import BadInput, from_client
from tfs_proxy.serving_json.columns import batch_of, column
from tfs_proxy.serving_json.text import is_base64
from tfs_proxy.signature import Signature

PREDICT = "predict"
ROW = "instances"
COLUMN = "inputs"
EXAMPLES = "examples"

_SPACE = rb"[ \t\r\n]*"
_NAME = rb'"signature_name"%b:%b"([^"\\]*)"' % (_SPACE, _SPACE)
_HEAD = re.compile(
    rb'%b\{%b(?:%b%b,%b)?"(instances|inputs)"%b:%b(?=\[)'
    % (_SPACE, _SPACE, _NAME, _SPACE, _SPACE, _SPACE, _SPACE)
)
_TAIL = re.compile(rb"%b(?:,%b%b%b)?\}%b\Z" % (_SPACE, _SPACE, _NAME, _SPACE, _SPACE))
_TAIL_BYTES = 4096


class LoneList(NamedTuple):
    """A body of a signature's name and one list: its bytes from ``start`` to ``end``."""

    signature: str
    by_row: bool
    start: int
    end: int


def lone_list(body: bytes) -> LoneList | None:
    """The only list of a body, whose elements are not looked at; None for every other body."""
    head = _HEAD.match(body)
    last = body.rfind(b"]", max(0, len(body) - _TAIL_BYTES)) + 1
    tail = _TAIL.match(body, last) if head and last else None
    if head is None or tail is None or (head[1] is not None and tail[1] is not None):
        return None
    try:
        signature = (head[1] or tail[1] or b"").decode()
    except UnicodeDecodeError:
        return None
    return LoneList(signature, head[2] == ROW.encode(), head.end(), last)


def serving_form(values: Sequence[Any], method: str) -> Mapping[str, Any] | None:
    """The object that is TF Serving's own form, if these documents are that and nothing more.

    For predict that is one object with ``instances`` or ``inputs``, for classify and regress one
    with ``examples``. TF Serving would answer the first of several documents and drop the rest
    without a word, so several are never its form: ``{"instances": [1]}`` twice in one body is two
    records, and refused unless the model has an input called ``instances``.
    """
    if len(values) != 1 or type(values[0]) is not dict:
        return None
    keys = (ROW, COLUMN) if method == PREDICT else (EXAMPLES,)
    return values[0] if any(key in values[0] for key in keys) else None


def decode_serving_form(form: Mapping[str, Any], signature: Signature) -> Batch:
    """Decode an object that is TF Serving's form for predict; raises BadInput if it is malformed."""
    if ROW in form and COLUMN in form:
        raise BadInput(f"The body has both {ROW} and {COLUMN}: send one of them.")
    if ROW in form:
        if type(form[ROW]) is not list:
            raise BadInput(f"{ROW} must be a list.")
        return batch_of(form[ROW], signature)
    return _column_batch(form[COLUMN], signature)


def _column_batch(value: Any, signature: Signature) -> Batch:
    by_name = value if type(value) is dict and not is_base64(value) else None
    if by_name is None:
        if len(signature.inputs) != 1:
            raise BadInput(f"{COLUMN} must be an object: the model takes {', '.join(signature.inputs)}.")
        by_name = dict.fromkeys(signature.inputs, value)
    if by_name.keys() != signature.inputs.keys():
        raise BadInput(
            f"{COLUMN} has {from_client(', '.join(by_name))}; the model takes {', '.join(signature.inputs)}."
        )
    boxed = {name: column([by_name[name]], spec) for name, spec in signature.inputs.items()}
    arrays = {name: array.reshape(array.shape[1:]) for name, array in boxed.items()}
    return Batch(arrays, max((len(array) for array in arrays.values() if array.ndim), default=1))
