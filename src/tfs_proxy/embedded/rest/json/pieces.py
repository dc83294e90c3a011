"""The way through large bodies that hold one array of numbers: read piece by piece, in little memory.

Reached from `bulk`, before it has a whole body parsed.
"""

import re
from collections.abc import Callable, Collection, Mapping

from tfs_proxy.embedded.core.servable import Array, Tensor
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.serving_json.numbers import json_array
from tfs_proxy.signature import TensorSpec
from tfs_proxy.wire.data_types import data_type_name

Found = tuple[str, bool, dict[str, Array]]
"""Signature name, whether by row, and arrays by input."""

_SPACE = rb"[ \t\r\n]*"
_NAME = rb'"signature_name"%b:%b"([^"\\]*)"' % (_SPACE, _SPACE)
_HEAD = re.compile(
    rb'%b\{%b(?:%b%b,%b)?"(instances|inputs)"%b:%b(?=\[)'
    % (_SPACE, _SPACE, _NAME, _SPACE, _SPACE, _SPACE, _SPACE)
)
_TAIL = re.compile(rb"%b(?:,%b%b%b)?\}%b\Z" % (_SPACE, _SPACE, _NAME, _SPACE, _SPACE))
_TAIL_BYTES = 4096


def decode(
    body: bytes,
    inputs_of: Callable[[str], Mapping[str, Tensor]],
    data_types: Collection[int],
    budget: MemoryBudget,
) -> Found | None:
    """The call of a body whose only array is a regular one of numbers, of one of these types.

    None for every other body. Raises ServingError only if ``inputs_of`` does, and what the budget does.
    """
    parts = array_parts(body)
    if parts is None:
        return None
    signature, by_row, start, end = parts
    inputs = inputs_of(signature)
    if len(inputs) != 1:
        return None
    ((name, tensor),) = inputs.items()
    if tensor.data_type not in data_types:
        return None
    taken = budget.taken
    spec = TensorSpec(name, data_type_name(tensor.data_type), None)
    array = json_array(body, spec, budget, start, end)
    if array is None:
        budget.give_back(budget.taken - taken)
        return None
    return signature, by_row, {name: array}


def array_parts(body: bytes) -> tuple[str, bool, int, int] | None:
    """The signature's name, whether by row, and where the array of a body with no other begins and ends.

    None for every other body; what stands in the array is not looked at.
    """
    head = _HEAD.match(body)
    last = body.rfind(b"]", max(0, len(body) - _TAIL_BYTES)) + 1
    tail = _TAIL.match(body, last) if head and last else None
    if head is None or tail is None or (head[1] is not None and tail[1] is not None):
        return None
    try:
        signature = (head[1] or tail[1] or b"").decode()
    except UnicodeDecodeError:
        return None
    return signature, head[2] == b"instances", head.end(), last
