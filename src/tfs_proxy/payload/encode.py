"""A model's outputs -> the answer's body, by media type."""

from collections.abc import Callable, Sequence
from typing import Any

from tfs_proxy.batch import Outputs
from tfs_proxy.errors import NotAcceptable
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.formats.untyped import plain
from tfs_proxy.payload.portable import portable
from tfs_proxy.payload.registry import format_of, names_with


def encode(
    outputs: Outputs,
    records: int | None,
    media_type: str,
    write: Callable[[Outputs], bytes] | None = None,
) -> bytes:
    """Write outputs by name in one of `registry.OUTPUT_TYPES`, ``[records, ...]`` unless it is JSON.

    ``records`` None means as many as the first output has; ``write`` does it in a way of its own.
    Raises NotAcceptable if the model does not give one output record per input record, or for what the
    media type can't carry.
    """
    row = format_of(media_type)
    if row is None or row.encode is None:
        raise _unwritable(media_type, names_with(lambda row: row.encode))
    outputs = portable(outputs, media_type, has_complex=row.has_complex)
    if row.by_record:
        _check_records(outputs, records, media_type)
    return (write or row.encode)(outputs)


def encode_values(values: Sequence[Any], records: int | None, media_type: str) -> bytes:
    """Write the results of classify and regress, one JSON value per record, as `encode` does."""
    if records is not None and len(values) != records:
        raise _not_by_record(f"{len(values)} for {records}", media_type)
    row = format_of(media_type)
    if row is None or row.encode_results is None:
        raise NotAcceptable(
            f"classify and regress give no arrays, so the answer can't be {media_type}: "
            f"ask for {media.listed([media.JSON, *names_with(lambda row: row.encode_results)])}."
        )
    return row.encode_results(values)


def encode_array(value: Any, media_type: str) -> bytes:
    """An array, a data frame, a sparse matrix, or JSON's kinds of values as JSON, CSV or npy.

    CSV has a row for each element along the first axis. Raises NotAcceptable for any other type, and
    TypeError for values that it can't carry.
    """
    row = format_of(media_type)
    if row is None or row.encode_array is None:
        names = media.listed(names_with(lambda row: row.encode_array))
        raise NotAcceptable(
            f"{media.shown(media_type)} can't be written without an output_fn: ask for {names}."
        )
    return row.encode_array(plain(value))


def _check_records(outputs: Outputs, records: int | None, media_type: str) -> None:
    for name, array in outputs.items():
        if array.ndim and records is None:
            records = len(array)
        if array.ndim == 0 or len(array) != records:
            count = len(array) if array.ndim else "none"
            raise _not_by_record(f'"{name}" has {count} for {1 if records is None else records}', media_type)


def _not_by_record(what: str, media_type: str) -> NotAcceptable:
    return NotAcceptable(
        f"The model does not give one output record per input record ({what}), "
        f"so the answer can't be {media_type}: ask for {media.JSON}."
    )


def _unwritable(media_type: str, names: Sequence[str]) -> NotAcceptable:
    return NotAcceptable(f"{media.shown(media_type)} can't be written: ask for {media.listed(names)}.")
