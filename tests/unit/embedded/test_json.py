"""The JSON of the embedded server's REST API, over models that are made up: they answer with what they were asked."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.rest_app import Passed, RestAppOnAModel
from support.running import Answer
from tfs_proxy.embedded.core.servable import Array, ServableSignature
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.rest.handlers import decode_examples
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.wire.protos import SignatureDef, TensorInfo

FLOAT, DOUBLE, INT32, UINT8, INT8, STRING, COMPLEX64, INT64 = 1, 2, 3, 4, 6, 7, 8, 9
BFLOAT16, HALF = 14, 19
LARGE = b" " * 5000
"""Behind a body it makes that one of those that are tried as one list of numbers."""


class Echo(Passed):
    def answer(self, given: Mapping[str, Array], fetches: Sequence[str]) -> Sequence[Array]:
        return [given[name] for name in fetches]


class Echoes:
    """One model for each set of inputs; each input is an output, too."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def ask(self, body: str | bytes, **data_types: int) -> Answer:
        """The answer to a prediction of a model with these inputs."""
        ends = {alias: TensorInfo(name=f"{alias}:0", dtype=number) for alias, number in data_types.items()}  # type: ignore[arg-type]
        message = SignatureDef(inputs=ends, outputs=ends)
        model = RestAppOnAModel(self._pool, backend=Echo())
        model.servable.signatures = {"serving_default": ServableSignature("serving_default", message)}
        return model.predict(body.encode() if isinstance(body, str) else body)

    def read(self, body: str | bytes, **data_types: int) -> Any:
        answer = self.ask(body, **data_types)
        assert answer.status == 200, answer.body
        (found,) = json.loads(answer.body.decode("utf-8", "surrogateescape")).values()
        return found

    def refusal(self, body: str | bytes, **data_types: int) -> str:
        answer = self.ask(body, **data_types)
        assert answer.status == 400, answer.body
        return str(answer.json["error"])


@pytest.fixture(scope="module")
def echoes() -> Iterator[Echoes]:
    with ThreadPoolExecutor(1) as pool:
        yield Echoes(pool)


def test_values_at_the_edge_of_their_types(echoes: Echoes) -> None:
    assert echoes.read('{"inputs": []}', x=FLOAT) == []
    assert echoes.read('{"instances": [[], []]}', x=FLOAT) == [[], []]
    assert echoes.read('{"instances": [{"b64": "YQ"}, {"b64": " Y\\nQ= ="}]}', s=STRING) == ["a", "a"]


def test_what_only_tf_serving_reads(echoes: Echoes) -> None:
    """A second document behind the first, huge numbers, raw bytes, a byte order mark."""
    assert echoes.read('{"instances": [1]} {"instances": [2]}', x=FLOAT) == [1.0]
    assert echoes.read('{"instances": [18446744073709551616], "a": NaN}', x=DOUBLE) == [
        18446744073709551616.0
    ]
    assert echoes.read(b'{"instances": ["\xff"]}', s=STRING) == ["\udcff"]
    assert echoes.read(b'\xef\xbb\xbf{"instances": [1]}', x=FLOAT) == [1.0]


def test_the_first_of_equal_names_counts_at_the_top_and_the_last_within(echoes: Echoes) -> None:
    """As recorded from TF Serving; an input of the same name further in changes nothing."""
    for more in (b"", LARGE):
        assert echoes.read(b'{"instances": [1], "instances": [2]}' + more, a=INT32) == [1]
        assert echoes.read(b'{"instances": [{"a": 1, "a": 2}]}' + more, a=INT32) == [2]
        both = b'{"inputs": {"inputs": [1]}, "inputs": {"inputs": [2]}}'
        assert echoes.read(both + more, inputs=INT32) == [1]
        named = b'{"signature_name": "", "instances": [1], "signature_name": "nope"}'
        assert echoes.read(named + more, a=INT32) == [1]


values: st.SearchStrategy[Any] = st.recursive(
    st.integers(-3, 3) | st.floats(-2, 2, width=16) | st.sampled_from([None, True, "a", {"b64": "YQ=="}]),
    lambda inner: st.lists(inner, max_size=3) | st.builds(dict, x=inner),
    max_leaves=8,
)


@given(st.sampled_from(["instances", "inputs"]), values, st.sampled_from([FLOAT, INT64, UINT8, STRING]))
def test_large_bodies_are_read_as_small_ones(echoes: Echoes, form: str, value: Any, data_type: int) -> None:
    body = json.dumps({form: value}).encode()
    large, small = echoes.ask(body + LARGE, x=data_type), echoes.ask(body, x=data_type)
    assert (large.status, large.body) == (small.status, small.body)


@pytest.mark.parametrize(
    "form",
    ['{"signature_name": "serving_default", "instances": %s}', '{"inputs" : %s, "signature_name": ""}'],
)
def test_large_lists_of_numbers_may_stand_beside_a_signature(echoes: Echoes, form: str) -> None:
    rows = [[0.5, number] for number in range(2000)]
    assert echoes.read(form % json.dumps(rows), x=FLOAT) == rows


NO_JSON = [
    "  ", "\0{}", "{", '{"a" 1}', '{"a":1 "b":2}', "[1 2]", '{"instances": [1,]}', "[tru]", "[1.]", "[1e]", "[-]", "[1e999]",
    '["\\x"]', '["\\u12g4"]', '["\\ud800x"]', '["abc', '["a\x01"]', "[None]", "[" * 100_000, "[" * 100_000 + "]" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("body", NO_JSON)
def test_what_is_no_json_is_refused(echoes: Echoes, body: str) -> None:
    assert echoes.refusal(body, x=FLOAT).startswith("JSON Parse error: ")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            '{"instances": 1}',
            "JSON Value: {\n    \"instances\": 1\n} Expecting 'instances' to be an list/array",
        ),
        (
            '{"instances": [[1], 2]}',
            'Failed to process element: Record 2, input "x": 2 is where others have lists.',
        ),
        ('{"inputs": [true]}', 'Record 1, input "x": true is a boolean, but DT_FLOAT takes numbers.'),
    ],
)
def test_what_does_not_fit_is_refused(echoes: Echoes, body: str, text: str) -> None:
    assert echoes.refusal(body, x=FLOAT) == text


def test_a_long_value_is_cut_in_an_error(echoes: Echoes) -> None:
    assert len(echoes.refusal(f"[{'1,' * 100_000}1]", x=FLOAT)) < 2000


def test_inputs_have_the_graphs_names_alone(echoes: Echoes) -> None:
    """As in TensorFlow Serving, which knows no others."""
    for body in ('{"instances": [{"x": 1, "the z": 2}]}', '{"inputs": {"x": [1], "the z": [2]}}'):
        assert re.search("the.z", echoes.refusal(body, x=INT32, the_z=INT32))


@pytest.mark.parametrize("form", ["instances", "inputs"])
@pytest.mark.parametrize("data_type", [HALF, BFLOAT16, COMPLEX64])
def test_no_values_of_a_type_without_json(echoes: Echoes, form: str, data_type: int) -> None:
    """Lists without a value need no conversion, as in TensorFlow Serving."""
    assert echoes.read(json.dumps({form: [[]]}), x=data_type) == [[]]


@pytest.mark.parametrize(
    ("value", "text"),
    [("1.5", "1.5 is not a whole number, but DT_INT8 takes"), ("3000000000", "out of the range of DT_INT8")],
)
def test_an_error_names_the_inputs_own_type(echoes: Echoes, value: str, text: str) -> None:
    """Not the one of 32 bits that its values are read by."""
    assert text in echoes.refusal(f'{{"instances": [{value}]}}', x=INT8)
    assert text in echoes.refusal(f'{{"inputs": {{"x": [{value}], "n": [1]}}}}', x=INT8, n=INT32)


@pytest.mark.parametrize("text", ["!", "YQ=", "====", "YWJj=", "YQ===", " Y Q = ", "Y"])
def test_base64_has_to_be_base64(echoes: Echoes, text: str) -> None:
    """Anything else in a b64 object is refused, as is padding that is neither whole nor left out."""
    for body in ('{"inputs": [{"b64": "%s"}]}', '{"instances": ["a", {"b64": "%s"}]}'):
        assert "is not base64" in echoes.refusal(body % text, s=STRING)


def test_outputs_without_rows_are_refused(echoes: Echoes) -> None:
    unequal = '{"signature_name": "", "inputs": {"a": 1, "b": 2}}'
    assert echoes.read(unequal, a=INT32, b=INT32) == {"a": 1, "b": 2}
    assert "Failed to get input map" in echoes.refusal('{"instances": [1]}')


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
    with pytest.raises(ServingError) as caught:
        decode_examples(body.encode(), MemoryBudget())
    assert caught.value.text == text


def test_features_may_have_any_name() -> None:
    """Bytes that are no UTF-8 name a feature that no model asks for: the others are read."""
    _, examples = decode_examples(
        b'{"context": {"\xfe": 1}, "examples": [{"\xff": 1.0, "x": 2.0}]}', MemoryBudget()
    )
    (example,) = examples.example_list_with_context.examples
    assert list(example.features.feature["x"].float_list.value) == [2.0]
    assert len(example.features.feature) == 2


def test_of_features_with_one_name_the_last_one_counts() -> None:
    _, examples = decode_examples(b'{"examples": [{"x": null, "x": ["a"]}]}', MemoryBudget())
    assert examples.example_list.examples[0].features.feature["x"].bytes_list.value == [b"a"]


def test_outputs_have_one_order() -> None:
    """That of their names, in every process: two machines of a transform job must write the same bytes."""
    names = [f"output_{number}" for number in range(20)]
    message = SignatureDef(outputs={name: TensorInfo(name=f"{name}:0") for name in names})
    assert list(ServableSignature("serving_default", message).outputs) == sorted(names)
