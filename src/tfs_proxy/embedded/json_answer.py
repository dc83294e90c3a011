"""Outputs to the JSON that TF Serving answers with: rows, columns, classes and regressions."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from tfs_proxy.embedded.errors import invalid
from tfs_proxy.embedded.json_text import decimal, decimals, quoted
from tfs_proxy.embedded.servable import Array, type_name
from tfs_proxy.embedded.tall import shape_of
from tfs_proxy.protos.tensors import data_type_of

_INDENT = "    "
_BYTES_SUFFIX = "_bytes"
_WRITABLE = {1, 2, 3, 4, 5, 6, 7, 9, 10, 22, 23}

Texts = list[str]


def rows(outputs: Mapping[str, Array]) -> bytes:
    """``{"predictions": […]}``: one element per row, an object of it where there are several outputs.

    Raises ServingError where the outputs do not share their first dimension, or JSON has no form
    for their type.
    """
    count = _row_count(outputs)
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        elements = _lists(_texts(name, array), shape_of(array)[1:], count)
        return f'{{\n    "predictions": [{", ".join(elements)}\n    ]\n}}'.encode("utf-8", "surrogateescape")
    columns = {
        quoted(name.encode()): _lists(_texts(name, array), shape_of(array)[1:], count)
        for name, array in outputs.items()
    }
    inner, outer = _INDENT * 3, _INDENT * 2
    objects = [
        f"{outer}{{\n"
        + ",\n".join(f"{inner}{name}: {column[index]}" for name, column in columns.items())
        + f"\n{outer}}}"
        for index in range(count)
    ]
    text = '{\n    "predictions": [\n' + ",\n".join(objects) + "\n    ]\n}"
    return text.encode("utf-8", "surrogateescape")


def columns(outputs: Mapping[str, Array]) -> bytes:
    """``{"outputs": …}``: the tensor itself, or an object of them where there are several.

    Raises ServingError where JSON has no form for a type.
    """
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        text = _indented(_texts(name, array), shape_of(array), 1)
    else:
        inner = _INDENT * 2
        members = [
            f"{inner}{quoted(name.encode())}: {_indented(_texts(name, array), shape_of(array), 2)}"
            for name, array in outputs.items()
        ]
        text = "{\n" + ",\n".join(members) + "\n    }"
    return f'{{\n    "outputs": {text}\n}}'.encode("utf-8", "surrogateescape")


def classes(results: Sequence[Sequence[tuple[bytes, float]]]) -> bytes:
    """``{"results": […]}`` of a classification: per example its labels with their scores."""
    listed = [
        "[" + ", ".join(f"[{quoted(label)}, {decimal(score)}]" for label, score in result) + "]"
        for result in results
    ]
    return f'{{\n    "results": [{", ".join(listed)}\n    ]\n}}'.encode("utf-8", "surrogateescape")


def regressions(values: Array) -> bytes:
    """``{"results": […]}`` of a regression: one number per example."""
    return f'{{\n    "results": [{", ".join(map(decimal, values.tolist()))}]\n}}'.encode()


def error(text: str) -> bytes:
    """``{"error": …}``."""
    return f'{{\n    "error": {quoted(text.encode("utf-8", "surrogateescape"))}\n}}'.encode(
        "utf-8", "surrogateescape"
    )


def _row_count(outputs: Mapping[str, Array]) -> int:
    count = 0
    for name, array in outputs.items():
        shape = shape_of(array)
        if not shape:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if shape[0] < 1:
            raise invalid(f"Tensor name: {name} has invalid batch size: {shape[0]}")
        if count and shape[0] != count:
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {shape[0]} expecting: {count}")
        count = shape[0]
    return count


def _texts(name: str, array: Array) -> Texts:
    """Every element's own JSON text, row by row."""
    data_type = data_type_of(array)
    if data_type not in _WRITABLE:
        raise invalid(f"Failed to write JSON value for tensor type: {type_name(data_type)}")
    flat = np.asarray(array).reshape(-1)
    kind = flat.dtype.kind
    if kind == "f":
        return decimals(flat) or [decimal(value) for value in flat.tolist()]
    if kind == "b":
        return ["true" if value else "false" for value in flat.tolist()]
    if kind in "iu":
        return [str(value) for value in flat.tolist()]
    if name.endswith(_BYTES_SUFFIX):
        return [f'{{"b64": "{b64encode(value).decode()}"}}' for value in _bytes(flat)]
    return [quoted(value) for value in _bytes(flat)]


def _bytes(flat: Array) -> list[bytes]:
    return [value if isinstance(value, bytes) else str(value).encode() for value in flat.tolist()]


def _lists(texts: Texts, shape: Sequence[int], count: int) -> Texts:
    """Elements joined into lists of this shape, on one line: ``count`` of them."""
    for level in range(len(shape) - 1, -1, -1):
        texts = _grouped(texts, shape[level], count * prod(shape[:level]), "[", ", ", "]")
    return texts


def _grouped(texts: Texts, size: int, count: int, start: str, glue: str, end: str) -> Texts:
    if size == 0:
        return ["[]"] * count
    return [start + glue.join(texts[at : at + size]) + end for at in range(0, len(texts), size)]


def _indented(texts: Texts, shape: Sequence[int], depth: int) -> str:
    """Elements joined into lists of this shape, one element a line."""
    if not shape:
        return texts[0]
    for level in range(len(shape) - 1, -1, -1):
        inner, outer = _INDENT * (depth + level + 1), _INDENT * (depth + level)
        texts = _grouped(
            texts, shape[level], prod(shape[:level]), f"[\n{inner}", f",\n{inner}", f"\n{outer}]"
        )
    return texts[0]
