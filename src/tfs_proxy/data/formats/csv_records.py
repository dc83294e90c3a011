"""Records of text/csv (RFC 4180), typed by the signature, one record a row.

A row of one cell is a scalar (a list if the signature wants lists of one), a longer one a list.
``header=present`` says that the first row names the inputs: a name over several columns takes a
list of their cells. If the media type doesn't say, a first row is a header if each cell of it is
the name of an input, all of them are there and no number could be meant; ``header=absent`` says it
is a record. ``columns`` names the columns of rows without a header. ``delimiter`` is the
character between cells. Numbers may be written as people do (``+1``, ``.5``, ``5.``, ``007``,
``NaN``, ``inf``, spaces next to them), and whole ones as ``1.0`` or ``1e3``, as pandas writes a column
with a gap; blank lines are skipped.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.data.serving_json.documents import BYTE_ORDER_MARK, text_in
from tfs_proxy.data.serving_json.numbers import csv_array, is_numeric
from tfs_proxy.data.shapes import fitted, shape_text, takes_one
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput, UnsupportedMediaType, from_client
from tfs_proxy.values.memory import STRING_BYTES, TEXT_NUMBER_BYTES, MemoryBudget
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import Kind, dtype_of
from tfs_proxy.wire.media_types import MediaType, shown

CHUNK_ROWS = 4096
HEADER_HINT = " If row 1 is a header, send Content-Type: text/csv; header=present."
_ABSENT_HINT = " Row 1 is a header: if it is a record, send Content-Type: text/csv; header=absent."
_SHOWN_CHARACTERS = 40
_SHOWN_NAMES = 10
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?", re.ASCII)
_MOST_DIGITS = 40
NUMBER = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?|nan|inf|infinity)",
    re.ASCII | re.IGNORECASE,
)
_HEADERS = {"": None, "present": True, "absent": False}
_DELIMITERS = {"tab": "\t", "\\t": "\t", "t": "\t"}
"""Names of delimiters; ``t`` is what RFC 9110 makes of a quoted backslash and t."""
_NO_DELIMITERS = '"\r\n+-._ '
_BOOLS = {"true": True, "1": True, "false": False, "0": False}
# NOTE: the csv module stops at 131,072 characters a cell; the size of a body is limited elsewhere.
csv.field_size_limit(2**31 - 1)

Row = list[str]


class Dialect(Struct, frozen=True):
    """Form of a table; ``header`` None means that its first row has to tell.

    ``columns`` are the inputs of the columns of a table without a header, () if that is not known.
    """

    header: bool | None
    delimiter: str
    columns: tuple[str, ...]


def csv_dialect(parameters: Mapping[str, str]) -> Dialect:
    """Read the parameters of ``text/csv`` (header is RFC 4180's); raises UnsupportedMediaType."""
    header = parameters.get("header", "").lower()
    if header not in _HEADERS:
        raise UnsupportedMediaType(
            f"text/csv; header={shown(header)} is not valid: header is present or absent (RFC 4180)."
        )
    cell_end = parameters.get("delimiter", ",")
    delimiter = _DELIMITERS.get(cell_end.lower(), cell_end)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in _NO_DELIMITERS:
        raise UnsupportedMediaType(
            f"text/csv; delimiter={shown(cell_end)} is not valid: send one character, such as ; or |, or tab."
        )
    return Dialect(_HEADERS[header], delimiter, _named_columns(parameters.get("columns", "")))


def _named_columns(text: str) -> tuple[str, ...]:
    try:
        return tuple(cell.strip() for cell in next(csv_rows(text.encode(), ","), []))
    except BadInput:
        raise UnsupportedMediaType(
            f"text/csv; columns={shown(text)} is not valid: send the names of the inputs, as in columns=a,b."
        ) from None


def csv_batch(body: bytes, content_type: MediaType, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode a body for predict, in the dialect that the parameters of its media type name."""
    return fitted(decode_csv(body, signature, csv_dialect(content_type.parameters), budget), signature)


def decode_csv(body: bytes, signature: Signature, dialect: Dialect, budget: MemoryBudget) -> Batch:
    """Decode rows for predict.

    Models of several inputs need a header row, or ``columns`` in the dialect; for one input any names
    will do, if the dialect says that there is one. Raises BadInput naming row and column, both counted
    from 1, blank lines and the header row left out; PayloadTooLarge if the cells are more than the budget
    has left.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    numeric = all(is_numeric(spec) for spec in signature.inputs.values())
    cell_bytes = TEXT_NUMBER_BYTES if numeric else STRING_BYTES
    budget.take_table(body, dialect.delimiter.encode(), cell_bytes)
    if not dialect.header and len(signature.inputs) == 1:
        ((name, spec),) = signature.inputs.items()
        array = csv_array(body, spec, dialect.delimiter) if is_numeric(spec) else None
        if array is not None:
            return Batch({name: _shaped(array, spec)}, len(array))
    rows = csv_rows(body, dialect.delimiter)
    first = next(rows, None)
    if dialect.header or (first is not None and _is_header(first, signature, dialect)):
        columns = _columns(first, signature, any_names=dialect.header is not None)
        return _decode_rows(rows, columns, signature, "", "" if dialect.header else _ABSENT_HINT)
    specs = signature.inputs
    if len(specs) != 1 and not dialect.columns:
        raise BadInput(
            f"The model takes {len(specs)} inputs ({', '.join(sorted(specs))}): send a header row that names "
            "each of them, or their order, as in Content-Type: text/csv; columns=NAME,NAME, or send JSON."
            f"{_joined(first or ())}"
        )
    order = [signature.alias(name) for name in dialect.columns]
    widths = {name: _width(specs[name]) for name in specs if order.count(name) == 1}
    cells = [name for name in order for _ in range(widths.get(name, 1))]
    columns = _columns(cells, signature, "The order of columns")
    rows = chain(() if first is None else (first,), rows)
    return _decode_rows(rows, columns, signature, HEADER_HINT if dialect.header is None else "")


def _is_header(row: Row, signature: Signature, dialect: Dialect) -> bool:
    """True if a first row is no record, by the first of these cases that it is.

    | cells of the row | a header |
    |---|---|
    | any, if the media type tells; or no input's name | no |
    | names of all inputs alone | yes; of one without strings, unless the first cell is a value |
    | any of several inputs' names, without ``columns`` | yes, unless all cells are numbers |
    | names of all inputs, and others | if none is a value, and the input takes no texts of several columns |
    | names of some inputs | no |

    A header that names too few inputs, or too much, is refused later.
    """
    names = {signature.alias(cell.strip()) for cell in row}
    inputs = signature.inputs
    if dialect.header is not None or not names & inputs.keys():
        return False
    spec = next(iter(inputs.values())) if len(inputs) == 1 else None
    if names == inputs.keys():
        return spec is None or dtype_of(spec)[0] is Kind.STRING or not _is_value(row[0].strip())
    if spec is None and not dialect.columns:
        return not all(map(NUMBER.fullmatch, names))
    is_text = spec is not None and dtype_of(spec)[0] is Kind.STRING and not takes_one(spec)
    return names > inputs.keys() and not is_text and not any(map(_is_value, names))


def _is_value(cell: str) -> bool:
    return NUMBER.fullmatch(cell) is not None or cell.lower() in _BOOLS


def csv_rows(body: bytes, delimiter: str) -> Iterator[Row]:
    """Cells of each row that has any; raises BadInput if the text is not CSV, or not UTF-8."""
    lines = io.TextIOWrapper(io.BytesIO(body), "utf-8", newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        yield from (row for row in reader if row)
    except UnicodeDecodeError:
        text_in(body)
    except csv.Error as error:
        raise BadInput(f"Line {reader.line_num} is not CSV: {error}.", (reader.line_num - 1,)) from None


def _width(spec: TensorSpec) -> int:
    size, *others = (spec.shape or ())[1:] or (None,)
    if size == 0 or any(other not in {1, None} for other in others):
        shape = shape_text(spec.shape or ())
        raise BadInput(f'Columns can\'t hold the input "{spec.name}" of shape {shape}: send JSON.')
    return size or 1


def _columns(
    header: Row | None, signature: Signature, source: str = "The header row", *, any_names: bool = True
) -> Mapping[str, Sequence[int]] | None:
    """Columns of each input; None if all of them go to the only input, whose columns may have any names."""
    if header is None:
        raise BadInput("The body has no header row.")
    found: dict[str, list[int]] = {}
    for position, name in enumerate(header):
        found.setdefault(name.strip(), []).append(position)
    positions = signature.by_alias(found)
    unknown = positions.keys() - signature.inputs.keys()
    missing = signature.inputs.keys() - positions.keys()
    if len(signature.inputs) == 1 and (any_names or not unknown):
        return None
    if unknown or missing:
        problems = {"names": unknown, "lacks": missing}
        problem = " and ".join(f"{verb} {_quoted(names)}" for verb, names in problems.items() if names)
        only = ": send only columns of these names" if unknown else ""
        only += ", in pandas with index=False" if "" in unknown else ""
        takes = f"the model takes {', '.join(sorted(signature.inputs))}{only}."
        raise BadInput(f"{source} {problem}; {takes}{_joined(unknown)}")
    return positions


def _decode_rows(
    rows: Iterator[Row],
    columns: Mapping[str, Sequence[int]] | None,
    signature: Signature,
    hint: str,
    empty_hint: str = "",
) -> Batch:
    """Turn rows into arrays a chunk at a time, so that memory follows the arrays, not the text."""
    chunks: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in signature.inputs}
    width = 0
    count = 0
    while chunk := _chunk(rows, count, width, signature, columns):
        width = len(chunk[0])
        named = width if columns is None else sum(map(len, columns.values()))
        if width != named:
            names = f" If row 1 is a header, it must name no more than {', '.join(sorted(signature.inputs))}."
            more = _joined(chunk[0]) or (names if hint and not any(map(_is_value, chunk[0])) else "")
            raise BadInput(
                f"Row {count + 1} has {width} cells, but {named} columns have a name"
                f"{_lacks(columns, width)}.{more}",
                (count,),
            )
        for name, spec in signature.inputs.items():
            positions = range(width) if columns is None else columns[name]
            kind, dtype = dtype_of(spec)
            parse = _PARSERS[kind]
            values: list[Any] = []
            for number, row in enumerate(chunk, count + 1):
                for position in positions:
                    try:
                        values.append(parse(row[position]))
                    except (KeyError, ValueError, ArithmeticError):
                        raise _bad_cell(row[position], number, position, spec, hint) from None
            chunks[name].append(_typed(values, (len(chunk), len(positions)), (count, positions), spec, dtype))
        count += len(chunk)
    if not count:
        raise BadInput(f"The body has no rows.{empty_hint}")
    specs = signature.inputs
    return Batch(
        {name: _shaped(np.concatenate(arrays), specs[name]) for name, arrays in chunks.items()}, count
    )


def _chunk(
    rows: Iterator[Row],
    count: int,
    width: int,
    signature: Signature,
    columns: Mapping[str, Sequence[int]] | None,
) -> list[Row]:
    numeric = all(dtype_of(spec)[0] is not Kind.STRING for spec in signature.inputs.values())
    chunk: list[Row] = []
    for row in rows:
        if numeric and len(row) == 1 and row[0].isspace():
            continue
        expected = width or len(chunk[0] if chunk else row)
        if len(row) != expected:
            position = count + len(chunk) + 1
            raise BadInput(
                f"Row {position} has {len(row)} cells, but row 1 has {expected}{_lacks(columns, len(row))}.",
                (position - 1,),
            )
        chunk.append(row)
        if len(chunk) == CHUNK_ROWS:
            break
    return chunk


def _lacks(columns: Mapping[str, Sequence[int]] | None, width: int) -> str:
    """Name the columns of the header that a row of ``width`` cells does not have, for an error text."""
    missing = [name for name, positions in (columns or {}).items() if max(positions) >= width]
    return f": it lacks {_quoted(missing)}" if missing else ""


def _typed(
    values: list[Any],
    shape: tuple[int, int],
    origin: tuple[int, Sequence[int]],
    spec: TensorSpec,
    dtype: np.dtype[Any],
) -> npt.NDArray[Any]:
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype).reshape(shape)
    except OverflowError:
        low = np.iinfo(dtype).min
        high = np.iinfo(dtype).max
        odd = next(i for i, value in enumerate(values) if not low <= value <= high)
        row = odd // shape[1] + origin[0] + 1
        position = origin[1][odd % shape[1]]
        value = from_client(values[odd])
        raise BadInput(
            f"Row {row}, column {position + 1}: {value} is out of the range of {spec.dtype}.",
            (row - 1, spec.name),
        ) from None


def _float(cell: str) -> float:
    text = cell.strip()
    if not NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _whole(cell: str) -> int:
    plain = _WHOLE.fullmatch(cell.strip())
    if plain:
        return int(plain[1])
    text = cell.strip()
    number = Decimal(text if NUMBER.fullmatch(text) else "nan")
    if number.adjusted() > _MOST_DIGITS or number != int(number):
        raise ValueError(cell)
    return int(number)


_PARSERS: Mapping[Kind, Callable[[str], Any]] = {
    Kind.FLOAT: _float,
    Kind.INTEGER: _whole,
    Kind.BOOL: lambda cell: _BOOLS[cell.strip().lower()],
    Kind.STRING: str.encode,
}


def _bad_cell(cell: str, row: int, position: int, spec: TensorSpec, hint: str) -> BadInput:
    may_be_name = row == 1 and cell.strip() and not NUMBER.fullmatch(cell.strip())
    what = f"{_shown(cell)} can't be read" if cell.strip() else "the cell is empty"
    return BadInput(
        f"Row {row}, column {position + 1}: {what}: the column takes {dtype_of(spec)[0].value} "
        f'(input "{spec.name}" is {spec.dtype}).' + (_joined((cell,)) or (hint if may_be_name else "")),
        (row - 1, spec.name),
    )


def _shaped(array: npt.NDArray[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """Make one column a scalar in each row, unless the signature has lists of one: ``[None, 1]``."""
    lists_of_one = spec.shape is not None and len(spec.shape) == 2 and spec.shape[1] in {1, None}  # noqa: PLR2004
    return array if array.shape[1] > 1 or lists_of_one else array[:, 0]


def _joined(cells: Iterable[str]) -> str:
    """Sentence about cells in which another delimiter stands; "" if there is none."""
    text = " ".join(cells)
    for character, name in (("\t", "tab"), (";", ";")):
        if character in text:
            return f" Cells seem to be joined by {name}: send Content-Type: text/csv; delimiter={name}."
    return ""


def header_hint(body: bytes, content_type: MediaType) -> str:
    """Sentence with the names of a header that the media type tells of; "" without one."""
    dialect = csv_dialect(content_type.parameters)
    names = next(csv_rows(body.removeprefix(BYTE_ORDER_MARK), dialect.delimiter), [])[:_SHOWN_NAMES]
    send = f" The header row names {_quoted(names)}: send only the columns of the input."
    return send if dialect.header else ""


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(_shown(name) for name in sorted(names))


def _shown(text: str) -> str:
    return from_client(f'"{text}"' if len(text) <= _SHOWN_CHARACTERS else f'"{text[:_SHOWN_CHARACTERS]}..."')
