"""Outputs to the JSON that TF Serving answers with: rows, columns, classes and regressions."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tfs_proxy.embedded.core.servable import Array, type_name
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.serving_json import answer_text as serving_text
from tfs_proxy.serving_json.answer_text import (
    INDENT,
    NoRows,
    NoText,
    Texts,
    decimal,
    element_texts,
    grouped,
    quoted,
)


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
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        text = _indented(_texts(name, array), array.shape, 1)
    else:
        inner = INDENT * 2
        members = [
            f"{inner}{quoted(name.encode())}: {_indented(_texts(name, array), array.shape, 2)}"
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


def regressions(values: Iterable[float]) -> bytes:
    """``{"results": […]}`` of a regression: one number per example."""
    return f'{{\n    "results": [{", ".join(map(decimal, values))}]\n}}'.encode()


def _texts(name: str, array: Array) -> Texts:
    try:
        return element_texts(name, array)
    except NoText as error:
        raise _no_text(error) from error


def _no_text(error: NoText) -> ServingError:
    return invalid(f"Failed to write JSON value for tensor type: {type_name(error.data_type)}")


def _indented(texts: Texts, shape: Sequence[int], depth: int) -> str:
    """Elements joined into lists of this shape, one element a line."""
    if not shape:
        return texts[0]
    for level in range(len(shape) - 1, -1, -1):
        inner, outer = INDENT * (depth + level + 1), INDENT * (depth + level)
        texts = grouped(texts, shape[level], prod(shape[:level]), f"[\n{inner}", f",\n{inner}", f"\n{outer}]")
    return texts[0]
