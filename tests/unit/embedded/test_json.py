"""The embedded server's reading and writing of JSON, without a server."""

import contextlib
import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tfs_proxy.embedded.core.servable import ServableSignature, Tensor
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.rest.json import answer as json_answer
from tfs_proxy.embedded.rest.json import bulk as json_bulk
from tfs_proxy.embedded.rest.json import examples as json_examples
from tfs_proxy.embedded.rest.json import parse as json_parse
from tfs_proxy.embedded.rest.json import pieces as json_pieces
from tfs_proxy.embedded.rest.json import predict as json_predict
from tfs_proxy.embedded.rest.json.parse import Reader
from tfs_proxy.embedded.rest.json.text import shown
from tfs_proxy.errors import PayloadTooLarge
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.protos import SignatureDef, TensorInfo
from tfs_proxy.serving_json import answer_text
from tfs_proxy.wire.grpc_codes import GrpcCode

FLOAT, DOUBLE, INT32, STRING, INT64, BOOL, HALF, UINT8 = 1, 2, 3, 7, 9, 10, 19, 4


def parse(body: bytes) -> Any:
    """The first document of a body."""
    return json_parse.parse(body, MemoryBudget())


def inputs(**data_types: int) -> dict[str, Tensor]:
    """A signature's inputs."""
    return {name: Tensor(name, f"{name}:0", number) for name, number in data_types.items()}


def decoded(body: str | bytes, **data_types: int) -> dict[str, Any]:
    """The arrays of a predict body, as lists."""
    raw = body.encode() if isinstance(body, str) else body
    call = json_predict.decode(raw, lambda _: inputs(**data_types), MemoryBudget())
    return {name: array.tolist() for name, array in call.arrays.items()}


def refusal(body: str, **data_types: int) -> str:
    """What a predict body is refused with."""
    with pytest.raises(ServingError) as caught:
        decoded(body, **data_types)
    return caught.value.text


JSON_TYPES = (dict, list, str, int, float, bool, type(None))

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 2]))
def test_the_exact_reader_reads_what_json_reads(value: Any, indent: int | None) -> None:
    """Any document of Python's json module comes out the same."""
    text = json.dumps(value, indent=indent)
    if "Infinity" not in text:
        assert Reader(text.encode()).document() == json.loads(text)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    """Whatever the bytes, there is a value or a refusal."""
    with contextlib.suppress(ServingError):
        assert isinstance(parse(body), JSON_TYPES)


@given(st.text(alphabet='[]{},:"\\ 0123456789.eE+-untrefalsNaIfiy', max_size=40))
def test_no_near_json_breaks_the_reader(text: str) -> None:
    """The same for text that looks like JSON."""
    with contextlib.suppress(ServingError):
        assert isinstance(Reader(text.encode()).document(), JSON_TYPES)


def test_depth_does_not_exhaust_the_stack() -> None:
    """A hundred thousand brackets are read, or refused, without recursion."""
    value = parse(b"[" * 100_000 + b"]" * 100_000)
    assert isinstance(value, list)
    with pytest.raises(ServingError, match="Missing a comma or"):
        parse(b"[" * 100_000 + b"1")


@pytest.mark.parametrize(
    "body", [b"[" * 100_001, b"[" * 100_001 + b"]" * 100_001, b'{"a[]": ' * 100_001, b'["\\"[",' * 100_001]
)
def test_far_too_many_brackets_are_not_read_one_by_one(body: bytes) -> None:
    """Nested deeper than anything that is meant, in whatever form, a document is refused as a whole."""
    with pytest.raises(ServingError, match="nested too deeply"):
        parse(body)


def test_brackets_side_by_side_or_in_text_are_not_deep() -> None:
    """Only those that are open at the same time count."""
    many = b"[" * 100_001
    assert parse(b'["' + many + b'", NaN]')[0] == many.decode()
    assert len(parse(b"[" + b"[]," * 100_001 + b"NaN]")) == 100_002
    with pytest.raises(ServingError, match="Missing a closing quotation mark"):
        parse(b'["' + many)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "The document is empty"),
        ("  ", "The document is empty. at offset: 2"),
        (" \0{}", "The document is empty. at offset: 1"),
        ("{", "Missing a name for object member. at offset: 1"),
        ('{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
        ('{"a":1 "b":2}', "Missing a comma or '}' after an object member. at offset: 7"),
        ("[1 2]", "Missing a comma or ']' after an array element. at offset: 3"),
        ("[1,]", "Invalid value. at offset: 3"),
        ("[tru]", "Invalid value. at offset: 4"),
        ("[1.]", "Miss fraction part in number. at offset: 3"),
        ("[1e]", "Miss exponent in number. at offset: 3"),
        ("[-]", "Invalid value. at offset: 2"),
        ("[1e999]", "Number too big to be stored in double. at offset: 1"),
        ('["\\x"]', "Invalid escape character in string. at offset: 2"),
        ('["\\u12g4"]', "Incorrect hex digit after \\u escape in string. at offset: 2"),
        ('["\\ud800x"]', "The surrogate pair in string is invalid. at offset: 2"),
        ('["abc', "Missing a closing quotation mark in string. at offset: 5"),
        ('["a\x01"]', "Invalid encoding in string. at offset: 3"),
        ("[None]", "Invalid value. at offset: 2"),
        ("[-Nan]", "Invalid value. at offset: 4"),
        ("[Infinit]", "Invalid value. at offset: 8"),
        ("[-Inx]", "Invalid value. at offset: 4"),
    ],
)
def test_malformed_json_is_refused_with_its_offset(body: str, text: str) -> None:
    """Each kind of mistake has the parser's own words and the place."""
    with pytest.raises(ServingError) as caught:
        parse(body.encode())
    assert caught.value.text == f"JSON Parse error: {text}"


def test_what_only_tf_serving_reads() -> None:
    """NaN, Infinity, a second document behind the first, equal keys, huge integers, raw bytes, a BOM."""
    assert math.isnan(parse(b"[NaN]")[0])
    assert parse(b"[Infinity, -Infinity, Inf, -Inf]") == [math.inf, -math.inf, math.inf, -math.inf]
    assert parse(b'{"instances": 1} {"instances": 2}') == {"instances": 1}
    assert parse(b'{"instances": 1, "instances": 2}') == {"instances": 1}
    assert parse(b"[18446744073709551616, NaN]")[0] == 18446744073709551616.0
    assert parse(b'["\xff", NaN]')[0].encode("utf-8", "surrogateescape") == b"\xff"
    assert parse(b"\xef\xbb\xbf[NaN]")
    assert parse(b'["\\ud83d\\ude00", NaN]')[0] == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        (123456.789, "123456.789"),
        (1e300, "1e+300"),
        ([1.0, 1e38, 1e-7, 123456789.0], "[1.0, 1e38, 1e-7, 123456789.0]"),
        ({"a": [1, True, None], "b": {}}, '{\n    "a": [1, true, null],\n    "b": {}\n}'),
        ('x"y', '"x\\"y"'),
    ],
)
def test_values_are_shown_as_tf_serving_shows_them(value: Any, text: str) -> None:
    """Error texts lay a value out as TF Serving does."""
    assert shown(value) == text


def bulk_bodies() -> st.SearchStrategy[tuple[str, dict[str, int]]]:
    """Bodies around the edge of what the bulk reader takes, with the inputs they are for."""
    number = st.integers(-5, 5) | st.floats(-5, 5, width=16) | st.none()
    nested = st.lists(st.lists(number, min_size=1, max_size=3), min_size=1, max_size=3)
    column = nested | st.lists(number, max_size=3) | number
    kinds = st.sampled_from([FLOAT, DOUBLE, INT32, INT64])
    plain = st.tuples(st.sampled_from(["instances", "inputs"]), column, kinds).map(
        lambda each: (json.dumps({each[0]: each[1]}), {"x": each[2]})
    )
    rows = st.tuples(st.lists(st.tuples(nested, column), min_size=1, max_size=3), kinds).map(
        lambda each: (
            json.dumps({"instances": [{"x": a, "y": b} for a, b in each[0]]}),
            {"x": each[1], "y": FLOAT},
        )
    )
    mixed = st.tuples(st.lists(number | st.builds(dict, x=column), min_size=1, max_size=3), kinds).map(
        lambda each: (json.dumps({"instances": each[0]}), {"x": each[1]})
    )
    columns = st.tuples(nested, column, kinds).map(
        lambda each: (json.dumps({"inputs": {"x": each[0], "y": each[1]}}), {"x": each[2], "y": FLOAT})
    )
    return plain | rows | mixed | columns


@settings(max_examples=400)
@given(bulk_bodies())
def test_the_bulk_reader_agrees_with_the_exact_one(case: tuple[str, dict[str, int]]) -> None:
    """Where it takes a body at all, its arrays are those of the exact reader."""
    body, data_types = case
    found = json_bulk.decode(body.encode(), lambda _: inputs(**data_types), MemoryBudget())
    if found is None:
        return
    exact = json_predict.decode(body.encode(), lambda _: inputs(**data_types), MemoryBudget())
    assert (found[0], found[1]) == (exact.signature, exact.by_row)
    assert found[2].keys() == exact.arrays.keys()
    for name, array in exact.arrays.items():
        assert found[2][name].dtype == array.dtype
        np.testing.assert_array_equal(found[2][name], array)


@settings(max_examples=400)
@given(bulk_bodies())
def test_the_reader_in_pieces_agrees_with_the_exact_one(case: tuple[str, dict[str, int]]) -> None:
    """It takes regular arrays of numbers alone."""
    body, data_types = case
    found = json_pieces.decode(
        body.encode(), lambda _: inputs(**data_types), (FLOAT, DOUBLE, INT32, INT64), MemoryBudget()
    )
    if found is None:
        return
    exact = json_predict.decode(body.encode(), lambda _: inputs(**data_types), MemoryBudget())
    assert (found[0], found[1]) == (exact.signature, exact.by_row)
    ((name, array),) = exact.arrays.items()
    assert found[2][name].dtype == array.dtype
    np.testing.assert_array_equal(found[2][name], array)


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [[1, 2], [3, 4]]}',
        ' { "inputs" : [[[1]]] } ',
        '{"signature_name": "s", "instances": [1]}',
        '{"instances": [1,2], "signature_name" : "s"}',
    ],
)
def test_one_array_of_numbers_is_read_in_pieces(body: str) -> None:
    """With a signature's name in front of it, or behind."""
    found = json_pieces.decode(body.encode(), lambda _: inputs(x=FLOAT), (FLOAT,), MemoryBudget())
    assert found is not None
    assert found[0] == ("s" if "signature_name" in body else "")
    assert found[1] == ("instances" in body)
    assert found[2]["x"].tolist() == next(iter(decoded(body, x=FLOAT).values()))


LARGE = 1_500_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": [0' + b",0" * 30_000_000 + b"]}",
        b'{"instances": [[]' + b",[]" * (4 * LARGE) + b"]}",
        b'{"instances": [' + b'{"x":0},' * LARGE + b"{}]}",
        b'{"instances": [""' + b',""' * (3 * LARGE) + b"]}",
        b"[" + b"{}," * (2 * LARGE) + b"NaN",
    ],
    ids=["numbers", "lists", "rows", "strings", "not orjson's"],
)
def test_a_body_that_becomes_too_much_is_refused(body: bytes) -> None:
    """Before it is parsed."""
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge, match=r"^The body becomes more than 400 MB of values: "):
            json_predict.decode(body, lambda _: inputs(x=FLOAT), MemoryBudget())
        assert tracemalloc.get_traced_memory()[1] < 5 * len(body)
    finally:
        tracemalloc.stop()


def test_a_body_that_is_no_regular_array_may_take_its_memory_once() -> None:
    """What the reader in pieces had counted before it gave up is free for the exact one."""
    body = b'{"instances": [0' + b",0" * 2_000_000 + b", NaN]}"
    budget = MemoryBudget(len(body) // 2 * 40)
    assert json_predict.decode(body, lambda _: inputs(x=FLOAT), budget).arrays["x"].size == 2_000_002


@given(
    npst.arrays(np.float32, npst.array_shapes(max_dims=4, min_side=0, max_side=5)),
    st.integers(1, 7),
)
def test_answers_in_pieces_are_the_same(array: np.ndarray[Any, Any], elements: int) -> None:
    """However many elements are written at a time."""
    answers = [{"y": array}, {"y": array, "z": array}]
    whole = [json_answer.columns(answer) for answer in answers]
    by_row = [json_answer.rows(answer) for answer in answers if len(array)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_answer, "PIECE_ELEMENTS", elements)
        patched.setattr(answer_text, "PIECE_ELEMENTS", elements)
        assert [json_answer.columns(answer) for answer in answers] == whole
        assert [json_answer.rows(answer) for answer in answers if len(array)] == by_row


def test_a_long_value_is_cut_in_an_error() -> None:
    """Its beginning says enough."""
    assert refusal(f"[{'1,' * 2_000_000}1]", x=FLOAT) == f"JSON Value: [{'1, ' * 349525}1... Is not object"


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [[1, 2], [3], [4, 5, 6]]}',
        '{"instances": [[1, 2], [3, [4]]]}',
        '{"instances": [[1, 2], [3, "a"]]}',
        '{"instances": [[1, 2]], "other": 1}',
        '{"instances": [[1, 2]], "instances": [[3, 4]]}',
        '{"instances": [{"x": [1]}, {"x": [1, 2]}]}',
        '{"instances": [{"x": [1]}, 2]}',
        '{"instances": [{"x": [1]}, [2]]}',
        '{"instances": [{"x": [1]}, null]}',
        '{"instances": [{"x": [1]}, {"b64": "YQ=="}]}',
        '{"instances": [1, {"x": 2}]}',
        '{"instances": [1, 2]} x',
    ],
)
def test_the_bulk_reader_leaves_irregular_bodies_alone(body: str) -> None:
    """Ragged lists, strings, rows of several kinds, other keys and trailing text are for the exact reader."""
    assert json_bulk.decode(body.encode(), lambda _: inputs(x=FLOAT), MemoryBudget()) is None


def test_large_bodies_take_the_bulk_way() -> None:
    """A regular list of numbers is read by it, with a signature name or without."""
    rows = [[1.5] * 10] * 10
    for body in (
        {"instances": rows},
        {"signature_name": "s", "instances": rows},
        {"inputs": {"x": rows}},
        {"instances": [{"x": rows}] * 3},
    ):
        assert (
            json_bulk.decode(json.dumps(body).encode(), lambda _: inputs(x=FLOAT), MemoryBudget()) is not None
        )


def test_rows_and_columns_of_every_type() -> None:
    """Each type that JSON knows is read, by row and by column."""
    assert decoded('{"instances": [{"a": 1, "b": [true]}, {"a": 2, "b": [false]}]}', a=INT32, b=BOOL) == {
        "a": [1, 2],
        "b": [[True], [False]],
    }
    assert decoded('{"inputs": {"a": 2.5, "s": ["x", {"b64": "YWJj"}]}}', a=DOUBLE, s=STRING) == {
        "a": 2.5,
        "s": [b"x", b"abc"],
    }
    assert decoded('{"instances": [300, -1]}', u=UINT8) == {"u": [44, 255]}
    assert decoded('{"inputs": []}', x=FLOAT) == {"x": []}
    assert decoded('{"instances": [[], []]}', x=FLOAT) == {"x": [[], []]}
    assert decoded('{"instances": [1e39]}', x=FLOAT) == {"x": [math.inf]}
    assert decoded('{"instances": [{"b64": "YQ"}]}', s=STRING) == {"s": [b"a"]}
    assert decoded('{"instances": [{"b64": " Y\\nQ= ="}]}', s=STRING) == {"s": [b"a"]}


def test_equal_keys_are_found_in_large_bodies() -> None:
    """What reads many numbers at a time keeps to the same rule."""
    first, last = [0.5] * 20_000, [1.5] * 20_000
    body = f'{{"inputs": {{"a": {json.dumps(first)}, "a": {json.dumps(last)}}}}}'
    assert decoded(body, a=FLOAT) == {"a": last}
    rows = f'{{"instances": [{{"a": {json.dumps(first)}, "a": {json.dumps(last)}}}]}}'
    assert decoded(rows, a=FLOAT) == {"a": [last]}
    top = f'{{"instances": {json.dumps(first)}, "instances": {json.dumps(last)}}}'
    assert decoded(top, a=FLOAT) == {"a": first}


def test_the_first_of_equal_keys_counts_at_the_top() -> None:
    """As recorded from TF Serving; an input of the same name further in changes nothing."""
    assert decoded('{"instances": [1], "instances": [2]}', a=INT32) == {"a": [1]}
    assert decoded('{"inputs": {"inputs": [1]}, "inputs": {"inputs": [2]}}', inputs=INT32) == {"inputs": [1]}
    assert (
        parse(b'{"signature_name": "own", "instances": [1], "signature_name": ""}')["signature_name"] == "own"
    )


def test_the_last_of_equal_keys_counts_within_rows() -> None:
    """In rows, columns and features, whichever reader takes the body."""
    assert decoded('{"instances": [{"a": 1, "a": 2}]}', a=INT32) == {"a": [2]}
    assert decoded('{"inputs": {"a": [1], "a": [2]}, "b": NaN}', a=INT32) == {"a": [2]}
    assert decoded('{"instances": [{"a": 1, "a": 2}], "instances": [{"a": 3, "a": 4}]}', a=INT32) == {
        "a": [2]
    }
    features = (
        json_examples.decode(b'{"examples": [{"x": [1, 2], "x": [3]}]}', MemoryBudget())
        .examples.example_list.examples[0]
        .features
    )
    assert features.feature["x"].int64_list.value == [3]


def test_an_input_of_a_top_level_name_costs_no_exact_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras calls inputs "inputs": rows that name it do not send the body to the slow reader."""
    monkeypatch.setattr(Reader, "document", None)
    assert decoded('{"instances": [{"inputs": 1}, {"inputs": 2}]}', inputs=INT32) == {"inputs": [1, 2]}


@pytest.mark.parametrize(
    "form", ['{"instances": %s}', '{"inputs": %s}', '{"inputs": {"a": %s}}', '{"instances": [{"a": %s}]}']
)
def test_more_dimensions_than_numpy_has_are_refused(form: str) -> None:
    """The refusal names the input, its dimensions and the limit; 64 dimensions are taken."""
    assert 'The tensor "a" has ' in refusal(form % ("[" * 70 + "1" + "]" * 70), a=INT32)
    assert "at most 64" in refusal(form % ("[" * 70 + "1" + "]" * 70), a=INT32)
    levels = 63 if "{" in form[2:] and "instances" in form else 64
    assert decoded(form % ("[" * levels + "1" + "]" * levels), a=INT32)["a"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            '{"instances": 1}',
            "JSON Value: {\n    \"instances\": 1\n} Excepting 'instances' to be an list/array",
        ),
        (
            '{"instances": [[1], 2]}',
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape [1] but got: []",
        ),
        ('{"instances": [1, {"x": 2}]}', "Expecting value/list but got object at item 1 of input list"),
        ('{"inputs": [[1, 2], [3]]}', "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ('{"inputs": [1, [2]]}', "Encountered list at unexpected level: 1 expected < 1"),
        (
            '{"inputs": [[1], 2]}',
            "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        ),
        ('{"inputs": [true]}', "JSON Value: true Type: True is not of expected type: float"),
        (
            '{"inputs": [{"b64": "YQ=="}]}',
            'JSON Value: {\n    "b64": "YQ=="\n} Type: Object is not of expected type: float',
        ),
    ],
)
def test_what_does_not_fit_is_refused(body: str, text: str) -> None:
    """Each misfit has TF Serving's words."""
    assert refusal(body, x=FLOAT) == text


def test_types_without_json_are_unimplemented() -> None:
    """Half has no JSON form: 501 in columns."""
    with pytest.raises(ServingError) as caught:
        decoded('{"inputs": [0.5]}', x=HALF)
    assert caught.value.code is GrpcCode.UNIMPLEMENTED


@pytest.mark.parametrize("text", ["!", "YQ=", "====", "YWJj=", "YQ===", " Y Q = ", "Y"])
def test_base64_has_to_be_base64(text: str) -> None:
    """Anything else in a b64 object is refused, as is padding that is neither whole nor left out."""
    for body in ('{"inputs": [{"b64": "%s"}]}', '{"instances": ["a", {"b64": "%s"}]}'):
        assert "Unable to base64 decode" in refusal(body % text, s=STRING)


def test_base64_has_to_be_a_string() -> None:
    """A number is none."""
    assert "not formatted correctly for base64 data" in refusal('{"inputs": [{"b64": 1}]}', s=STRING)


def test_empty_and_unequal_outputs_have_no_rows() -> None:
    """Rows need one first dimension of at least one."""
    with pytest.raises(ServingError, match="invalid batch size: 0"):
        json_answer.rows({"y": np.zeros((0, 2), np.float32)})
    with pytest.raises(ServingError, match="inconsistent batch size: 2 expecting: 1"):
        json_answer.rows({"y": np.zeros(1, np.float32), "z": np.zeros(2, np.float32)})
    with pytest.raises(ServingError, match="tensor type: half"):
        json_answer.columns({"y": np.zeros(1, np.float16)})


def test_outputs_without_elements_have_a_form_whatever_their_type() -> None:
    """Only a value can be without one."""
    empty = {"y": np.zeros((1, 0), np.float16)}
    assert json.loads(json_answer.columns(empty)) == {"outputs": [[]]}
    assert json.loads(json_answer.rows(empty)) == {"predictions": [[]]}


@given(npst.arrays(np.int64, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
def test_columns_are_the_tensor(array: np.ndarray[Any, Any]) -> None:
    """Column form is the nested list of the tensor, empty dimensions included."""
    assert json.loads(json_answer.columns({"y": array})) == {"outputs": array.tolist()}


@given(npst.arrays(np.int64, npst.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3)))
def test_rows_are_the_tensors_rows(array: np.ndarray[Any, Any]) -> None:
    """Row form is the same, and with two outputs an object per row."""
    assert json.loads(json_answer.rows({"y": array})) == {"predictions": array.tolist()}
    two = json.loads(json_answer.rows({"y": array, "z": array}))
    assert two == {"predictions": [{"y": row, "z": row} for row in array.tolist()]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("[]", "JSON Value: [] Is not object"),
        ("{}", "JSON Value: {} When method is classify, key 'examples' is expected and was not found"),
        ('{"examples": [1]}', "Example must be JSON object but got JSON Number"),
        ('{"examples": [{"x": null}]}', "Feature: x has element with unexpected JSON type: Null"),
        ('{"examples": [{"x": [[1]]}]}', "Feature: x has element with unexpected JSON type: Array"),
        ('{"examples": [{"x": [1, 2.5]}]}', "Unexpected element type in feature: x expecting type: int64"),
        ('{"examples": [{"x": ["a", 1]}]}', "Unexpected element type in feature: x expecting type: bytes"),
        (
            '{"examples": [{"x": 18446744073709551615}]}',
            "Feature: x has uint64 element. Only int64 is supported.",
        ),
    ],
)
def test_malformed_examples_are_refused(body: str, text: str) -> None:
    """Each has TF Serving's words."""
    with pytest.raises(ServingError) as caught:
        json_examples.decode(body.encode(), MemoryBudget())
    assert caught.value.text == text


def test_features_may_have_any_name() -> None:
    """Bytes that are no UTF-8 name a feature that no model asks for: the others are read."""
    call = json_examples.decode(
        b'{"context": {"\xfe": 1}, "examples": [{"\xff": 1.0, "x": 2.0}]}', MemoryBudget()
    )
    (example,) = call.examples.example_list_with_context.examples
    assert list(example.features.feature["x"].float_list.value) == [2.0]
    assert len(example.features.feature) == 2


def test_of_features_with_one_name_the_last_one_counts() -> None:
    """The others are not looked at."""
    call = json_examples.decode(b'{"examples": [{"x": null, "x": ["a"]}]}', MemoryBudget())
    assert call.examples.example_list.examples[0].features.feature["x"].bytes_list.value == [b"a"]


def test_examples_are_read_with_their_context() -> None:
    """Numbers, text, bytes and bools become features; the context stands beside the examples."""
    call = json_examples.decode(
        b'{"signature_name": "s", "context": {"c": 1.5}, "examples": [{"i": true, "s": "t", "b": [{"b64": "YQ=="}]}]}',
        MemoryBudget(),
    )
    listed = call.examples.example_list_with_context
    assert call.signature == "s"
    assert listed.context.features.feature["c"].float_list.value == [1.5]
    features = listed.examples[0].features.feature
    assert features["i"].int64_list.value == [1]
    assert features["s"].bytes_list.value == [b"t"]
    assert features["b"].bytes_list.value == [b"a"]


def test_outputs_have_one_order() -> None:
    """That of their names, in every process: two machines of a transform job must write the same bytes."""
    names = [f"output_{number}" for number in range(20)]
    message = SignatureDef(outputs={name: TensorInfo(name=f"{name}:0") for name in names})
    assert list(ServableSignature("serving_default", message).outputs) == sorted(names)
