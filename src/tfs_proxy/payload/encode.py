"""A model's outputs -> the answer's body: one output record per input record, by media type."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfs_proxy.batch import Outputs
from tfs_proxy.errors import NotAcceptable
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.formats.csv_text import csv_of_outputs, csv_of_values
from tfs_proxy.payload.formats.json_lines import lines_of_outputs, lines_of_values
from tfs_proxy.payload.formats.npy import write_npy
from tfs_proxy.payload.formats.npz import write_npz
from tfs_proxy.payload.portable import portable


def _npy(outputs: Outputs) -> bytes:
    if len(outputs) != 1:
        raise NotAcceptable(
            f"The model has {len(outputs)} outputs ({', '.join(sorted(outputs))}) and {media.NPY} holds one "
            f"array: ask for {media.NPZ}."
        )
    (array,) = outputs.values()
    return write_npy(array)


def _not_by_record(what: str, media_type: str) -> NotAcceptable:
    return NotAcceptable(
        f"The model does not give one output record per input record ({what}), "
        f"so the answer can't be {media_type}: ask for {media.JSON}."
    )


ENCODERS: Mapping[str, Callable[[Outputs], bytes]] = {
    media.JSON_LINES: lines_of_outputs,
    media.JSONS: lines_of_outputs,
    media.CSV: csv_of_outputs,
    media.NPY: _npy,
    media.NPZ: write_npz,
}
"""How the outputs of predict are written as each media type."""

VALUE_ENCODERS: Mapping[str, Callable[[Sequence[Any]], bytes]] = {
    media.JSON_LINES: lines_of_values,
    media.JSONS: lines_of_values,
    media.CSV: csv_of_values,
}
"""How the results of classify and regress, JSON values, are written as each media type."""

OUTPUT_TYPES: Sequence[str] = (
    media.JSON,
    *ENCODERS,
    *(alias for alias, known in media.ALIASES.items() if known in ENCODERS),
)
"""What Accept can ask for, the default first; JSON is what TF Serving gives."""


def encode(outputs: Outputs, records: int | None, media_type: str) -> bytes:
    """Write outputs ``[records, ...]`` by name in one of `OUTPUT_TYPES` other than JSON.

    ``records`` None means as many as the first output has. Raises NotAcceptable where the model does
    not give one output record per input record, or what the media type can't carry.
    """
    outputs = portable(outputs, media_type)
    for name, array in outputs.items():
        if array.ndim and records is None:
            records = len(array)
        if array.ndim == 0 or len(array) != records:
            given = len(array) if array.ndim else "none"
            raise _not_by_record(f'"{name}" has {given} for {1 if records is None else records}', media_type)
    return ENCODERS[media.resolved(media_type)](outputs)


def encode_values(values: Sequence[Any], records: int | None, media_type: str) -> bytes:
    """Write the results of classify and regress, one JSON value per record, as `encode` does."""
    if records is not None and len(values) != records:
        raise _not_by_record(f"{len(values)} for {records}", media_type)
    encoder = VALUE_ENCODERS.get(media.resolved(media_type))
    if encoder is None:
        raise NotAcceptable(
            f"classify and regress give no arrays, so the answer can't be {media_type}: "
            f"ask for {media.listed([media.JSON, *VALUE_ENCODERS])}."
        )
    return encoder(values)
