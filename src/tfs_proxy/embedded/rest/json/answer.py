"""Outputs to the JSON that TF Serving answers with: rows, columns, classes and regressions."""

import io
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tfs_proxy.embedded.core.servable import Array, type_name
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.serving_json import answer_text as serving_text
from tfs_proxy.serving_json.answer_text import (
    INDENT,
    PIECE_ELEMENTS,
    NoRows,
    NoText,
    Texts,
    as_bytes,
    element_texts,
    grouped,
    quoted,
)
from tfs_proxy.serving_json.decimals import FLOAT_DIGITS, decimal


def rows(outputs: Mapping[str, Array]) -> bytes:
    """``{"predictions": […]}``: one element per row, an object of it if there are several outputs.

    Raises ServingError if the outputs do not share their first dimension, or JSON has no form
    for their type.
    """
    try:
        return serving_text.rows(outputs)
    except NoRows as error:
        raise invalid(str(error)) from error
    except NoText as error:
        raise _no_text(error) from error


def columns(outputs: Mapping[str, Array]) -> bytes:
    """``{"outputs": …}``: the tensor itself, or an object of them if there are several.

    Raises ServingError if JSON has no form for a type.
    """
    text = io.BytesIO()
    text.write(b'{\n    "outputs": ')
    try:
        if len(outputs) == 1:
            ((name, array),) = outputs.items()
            _write(name, array, 1, text)
        else:
            for index, (name, array) in enumerate(outputs.items()):
                text.write(as_bytes((",\n" if index else "{\n") + f"{INDENT * 2}{quoted(name.encode())}: "))
                _write(name, array, 2, text)
            text.write(b"\n    }")
    except NoText as error:
        raise _no_text(error) from error
    text.write(b"\n}")
    return text.getvalue()


def classes(results: Sequence[Sequence[tuple[bytes, float]]]) -> bytes:
    """``{"results": […]}`` of a classification: per example its labels with their scores."""
    listed = [
        "[" + ", ".join(f"[{quoted(label)}, {decimal(score, FLOAT_DIGITS)}]" for label, score in result) + "]"
        for result in results
    ]
    return as_bytes(f'{{\n    "results": [{", ".join(listed)}\n    ]\n}}')


def regressions(values: Iterable[float]) -> bytes:
    """``{"results": […]}`` of a regression: one number per example."""
    return f'{{\n    "results": [{", ".join(decimal(value, FLOAT_DIGITS) for value in values)}]\n}}'.encode()


def _no_text(error: NoText) -> ServingError:
    return invalid(f"Failed to write JSON value for tensor type: {type_name(error.data_type)}")


def _write(name: str, array: Array, depth: int, text: io.BytesIO) -> None:
    """Write an array, one element a line, in pieces. Raises NoText."""
    if array.size <= PIECE_ELEMENTS or array.ndim == 0:
        text.write(as_bytes(_indented(element_texts(name, array), array.shape, depth)))
        return
    inner, outer = INDENT * (depth + 1), INDENT * depth
    glue = as_bytes(f",\n{inner}")
    step = max(1, PIECE_ELEMENTS // (array.size // len(array)))
    for start in range(0, len(array), step):
        text.write(glue if start else as_bytes(f"[\n{inner}"))
        if step == 1:
            _write(name, array[start], depth + 1, text)
        else:
            part = array[start : start + step]
            text.write(as_bytes(f",\n{inner}".join(_elements(element_texts(name, part), part.shape, depth))))
    text.write(as_bytes(f"\n{outer}]"))


def _indented(texts: Texts, shape: Sequence[int], depth: int) -> str:
    """Elements joined into lists of this shape, one element a line."""
    if not shape:
        return texts[0]
    inner, outer = INDENT * (depth + 1), INDENT * depth
    elements = _elements(texts, shape, depth)
    return grouped(elements, shape[0], 1, f"[\n{inner}", f",\n{inner}", f"\n{outer}]")[0]


def _elements(texts: Texts, shape: Sequence[int], depth: int) -> Texts:
    """Elements joined into one text for each along the first axis."""
    for level in range(len(shape) - 1, 0, -1):
        inner, outer = INDENT * (depth + level + 1), INDENT * (depth + level)
        texts = grouped(texts, shape[level], prod(shape[:level]), f"[\n{inner}", f",\n{inner}", f"\n{outer}]")
    return texts
