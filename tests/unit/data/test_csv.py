"""CSV: header rows told and guessed, delimiters, several inputs, and numbers read quickly in pieces."""

import numpy as np
import pytest

from support.signatures import Shape, floats, signature_of
from tfs_proxy.data.registry import decode, parse_media_type
from tfs_proxy.data.serving_json.numbers import json_array
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput, UnsupportedMediaType
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature

FLOATS = floats(None, 2)
PAIR = signature_of(a=("DT_FLOAT", (None,)), b=("DT_FLOAT", (None, 1)))
TWO = signature_of(a=("DT_FLOAT", (None, 2)), name=("DT_STRING", (None,)))


def _decoded(text: str, signature: Signature, parameters: str = "") -> Batch:
    return decode(text.encode(), parse_media_type(f"text/csv{parameters}"), signature)


@pytest.mark.parametrize(
    ("parameter", "delimiter"),
    [
        ("|", "|"),
        ('"|"', "|"),
        ("tab", "\t"),
        (r'"\t"', "\t"),
        ('":"', ":"),
        ("^", "^"),
        ('";"', ";"),
        (";", ";"),
        ("; ; charset=utf-8", ";"),
    ],
)
def test_delimiters(parameter: str, delimiter: str) -> None:
    """Numbers and quoted text are read with any; one of ; may stand quoted, or bare as people write it."""
    given_type = f"; delimiter={parameter}"
    assert _decoded(f"1{delimiter}2\n", FLOATS, given_type).inputs["x"].tolist() == [[1, 2]]
    assert _decoded(f"+1{delimiter}.5\n", FLOATS, given_type).inputs["x"].tolist() == [[1, 0.5]]
    rows = _decoded(
        f'name{delimiter}a{delimiter}a\n"x{delimiter}y"{delimiter}1{delimiter}2\n', TWO, given_type
    )
    assert rows.inputs["name"].tolist() == [f"x{delimiter}y".encode()]


@pytest.mark.parametrize("delimiter", ["ab", '""', '"\n"', "5", "-", '"é"'])
def test_no_delimiters(delimiter: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="as ; or"):
        _decoded("1", FLOATS, f"; delimiter={delimiter}")


def test_several_inputs_need_no_parameter() -> None:
    """A first row that names every input is a header, in whatever order."""
    batch = _decoded("a,name,a\n1,x,2\n3,y,4\n", TWO)
    assert batch.records == 2
    assert batch.inputs["a"].tolist() == [[1, 2], [3, 4]]
    assert batch.inputs["name"].tolist() == [b"x", b"y"]
    for text in ("1,x,2\n", "a,name,b\n1,x,2\n", "a\n1\n", ""):
        with pytest.raises(BadInput, match="header row"):
            _decoded(text, TWO)
    with pytest.raises(BadInput, match="header row"):
        _decoded("a,name,a\n1,x,2\n", TWO, "; header=absent")


@pytest.mark.parametrize(
    ("cell", "value"), [("5e18", 5 * 10**18), ("9007199254740993e0", 2**53 + 1), (" +9.25E2 ", 925)]
)
def test_whole_numbers_with_an_exponent_are_exact(cell: str, value: int) -> None:
    wholes = signature_of(x=("DT_INT64", (None,)))
    assert _decoded(f"{cell}\n", wholes).inputs["x"].tolist() == [value]
    with pytest.raises(BadInput, match="out of the range"):
        _decoded("1e19\n", wholes)
    for odd in (
        "1e-1",
        "1e999999999",
        "0e999999999",
        "1e-999999999",
        "1e-99999999999999999999",
        "nan",
        "-inf",
    ):
        with pytest.raises(BadInput, match="can't be read"):
            _decoded(f"{odd}\n", wholes)


def test_a_header_of_one_input() -> None:
    """The input's name over every column is a header where the input takes numbers."""
    assert _decoded("x,x\n1,2\n", FLOATS).inputs["x"].tolist() == [[1, 2]]
    assert _decoded(" x , x \n+1,2\n", FLOATS).records == 1
    with pytest.raises(BadInput, match="header=present"):
        _decoded("length,width\n1,2\n", FLOATS)
    assert _decoded("length,width\n1,2\n", FLOATS, "; header=present").inputs["x"].tolist() == [[1, 2]]


def test_a_hint_where_a_header_looks_likely() -> None:
    """Only the first row's error mentions headers; not for an empty cell or a number, nor below a header."""
    wholes = signature_of(a=("DT_INT64", (None,)), b=("DT_INT64", (None,)))
    for text, parameters in (("a,b\n0,1.5\n", ""), ("a,b\n0,x\n", ""), ("0,1.5\n", "; columns=a,b")):
        with pytest.raises(BadInput, match="Row 1, column 2") as refused:
            _decoded(text, wholes, parameters)
        assert "header" not in str(refused.value)
    for text, hint in (("a,b\n1,2\n", True), ("1,2\na,b\n", False), (",2\n", False)):
        with pytest.raises(BadInput, match=r"Row [12], column 1") as refused:
            _decoded(text, FLOATS)
        assert ("header" in str(refused.value)) is hint


@pytest.mark.parametrize(
    "text", ["1,2\n\t3,4\n", "1,\t2\n3,4", "\t1,2\n3\t,4\n", "1, 2\n3,4\n", "1,2\r\n3,4\r\n", "+1,2\n3,+4"]
)
def test_white_space_and_signs_are_no_delimiters(text: str) -> None:
    """Lines are told apart by their low characters first, and these are low, too."""
    assert _decoded(text, FLOATS).inputs["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("rows", [1, 299_999, 300_000])
def test_bodies_of_many_pieces(rows: int) -> None:
    """Megabytes are read piece by piece, and a ragged or bad row is found in any of them."""
    line = "12345678,2\n"
    batch = _decoded(line * rows, FLOATS)
    assert batch.inputs["x"].shape == (rows, 2)
    assert np.unique(batch.inputs["x"], axis=0).tolist() == [[12345678, 2]]
    as_json = json_array(
        f"[{','.join(['[12345678,2]'] * rows)}]".encode(), FLOATS.inputs["x"], MemoryBudget()
    )
    np.testing.assert_array_equal(as_json, batch.inputs["x"])
    for bad, says in (("1\n", "has 1 cells"), ("1,x\n", 'column 2: "x"'), ("1,\n", "is empty")):
        with pytest.raises(BadInput, match=f"Row {rows + 1}.*{says}"):
            _decoded(line * rows + bad + line, FLOATS)


@pytest.mark.parametrize("order", ["name,a", '"name, a"', "name,a,a", r'"\"name\",a"'])
def test_an_order_of_columns_stands_for_a_header(order: str) -> None:
    """An input that is named once takes as many columns as its shape has; a header has the last word."""
    for text in ("x,1,2\ny,3,4\n", "a,name,a\n1,x,2\n3,y,4\n"):
        batch = _decoded(text, TWO, f"; columns={order}")
        assert batch.inputs["a"].tolist() == [[1, 2], [3, 4]]
        assert batch.inputs["name"].tolist() == [b"x", b"y"]


def test_an_order_of_columns_that_can_not_be_read() -> None:
    with pytest.raises(UnsupportedMediaType, match="columns=a,b"):
        _decoded("x,1,2\n", TWO, r'; columns="\"a"')


@pytest.mark.parametrize(("shape", "cells"), [((None, 3, 1), 3), ((None, 0), 0), ((None, 2, 3), 0)])
def test_columns_of_an_input_that_is_named_once(shape: Shape, cells: int) -> None:
    signature = signature_of(a=("DT_FLOAT", (None,)), b=("DT_FLOAT", shape))
    if cells:
        assert _decoded("1,2,3,4\n", signature, "; columns=a,b").inputs["b"].shape == (1, 3, 1)
    else:
        with pytest.raises(BadInput, match=r'the input "b" of shape \[\?, .*\]: send JSON'):
            _decoded("1,2\n", signature, "; columns=a,b")


def test_commas_inside_other_delimiters_are_no_cells() -> None:
    """A decimal comma is refused where it stands, not read as two cells."""
    with pytest.raises(BadInput, match=r'Row 1, column 1: "1,5"'):
        _decoded("1,5;2\n", FLOATS, "; delimiter=;")


@pytest.mark.parametrize(
    ("signature", "text", "records"),
    [
        (signature_of(x=("DT_STRING", (None, 2))), "x,z\ny,y\n", 2),
        (signature_of(nan=("DT_FLOAT", (None,))), "nan\n1\n", 2),
        (signature_of(true=("DT_BOOL", (None,))), "true\n0\n", 2),
    ],
)
def test_what_may_be_a_value_is_no_header(signature: Signature, text: str, records: int) -> None:
    """A name that the input could take as a value stays a record."""
    assert _decoded(text, signature).records == records


@pytest.mark.parametrize("shape", [(None,), (None, 1), None])
def test_the_name_of_an_input_of_strings_is_a_header(shape: Shape) -> None:
    """A first line with nothing else is no record, unless the media type says so."""
    signature = signature_of(x=("DT_STRING", shape))
    assert _decoded("x\ny\nx\n", signature).inputs["x"].ravel().tolist() == [b"y", b"x"]
    assert _decoded("x\ny\n", signature, "; header=absent").records == 2
    with pytest.raises(BadInput, match=r"The body has no rows\. Row 1 is a header: .* header=absent"):
        _decoded("x\n", signature)


MORE = r'^The header row names "id"; the model takes \S+( \S+)?: send only columns of these names\.$'


@pytest.mark.parametrize(
    ("signature", "parameters", "text", "says"),
    [
        (floats(None, 1), "", "id,x\n7,1\n", MORE),
        (signature_of(x=("DT_STRING", (None,))), "", "id,x\n7,good\n", MORE),
        (PAIR, "", "id,a,b\n7,1,2\n", MORE),
        (PAIR, "; columns=a,b", "id,a,b\n7,1,2\n", MORE),
        (PAIR, "", "a,b,c\n1,2,3\n", 'The header row names "c"; the model takes a, b'),
        (PAIR, "", "a\n1\n", 'The header row lacks "b"; the model takes a, b'),
        (PAIR, "", "a,c\n1,2\n", 'The header row names "c" and lacks "b"; the model takes a, b'),
        (PAIR, "", "1,2\n", "send a header row"),
        (TWO, "; columns=name,b", "x,1,2\n", 'columns names "b" and lacks "a"; the model takes a, name'),
        (TWO, "; columns=name,a", "x,1\n", '1 has 2 cells, but 3 columns have a name: it lacks "a"'),
        (TWO, "; columns=name,a", "x,1,2,3\n", "Row 1 has 4 cells, but 3 columns have a name"),
        (PAIR, "", ",a,b\n0,1,2\n", 'names ""; the model takes a, b: .*, in pandas with index=False'),
        (PAIR, "; columns=a,b", "id,A,B\n7,1,2\n", "If row 1 is a header, it must name no more than a, b"),
        (FLOATS, "", "1;2\n3;4\n", "Cells seem to be joined by ;: send .*; delimiter=;"),
        (PAIR, "", "a;b\n1;2\n", "Cells seem to be joined by ;"),
        (PAIR, "; header=present", "a\tb\n1\t2\n", "Cells seem to be joined by tab: send .*; delimiter=tab"),
        (PAIR, "; columns=a,b", "1;2\n", "Cells seem to be joined by ;"),
    ],
)
def test_what_the_cells_tell(signature: Signature, parameters: str, text: str, says: str) -> None:
    """Columns too many and too few, an index of pandas, other names and another delimiter are recognised."""
    with pytest.raises(BadInput, match=says):
        _decoded(text, signature, parameters)


@pytest.mark.parametrize(
    "text", ["1,2\n\t3\n", "1,2\n3\t\n4,5", "\t1\n2,3", "1,2\n#3\n", "1,2\n 3\n", "1\t2\n3,4\n5,6"]
)
def test_a_low_character_replaces_no_delimiter(text: str) -> None:
    """A line with as many of them as another has commas is still too short."""
    with pytest.raises(BadInput, match="Row"):
        _decoded(text, FLOATS)
