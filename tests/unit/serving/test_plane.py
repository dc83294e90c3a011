"""The default pipeline: forwarding, conversion, and the form of answers."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from support.fake_upstream import Call, FakeUpstream
from support.plane import answer
from tfs_proxy.data.formats.npy import read_npy, write_npy
from tfs_proxy.serving.bodies import Body
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.values.errors import UnsupportedMediaType
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, Target, TensorSpec

TARGET = Target("m")


def _signature(name: str, inputs: dict[str, str], outputs: dict[str, str]) -> Signature:
    def specs(dtypes: dict[str, str]) -> dict[str, TensorSpec]:
        return {name: TensorSpec(name, dtype, (None,)) for name, dtype in dtypes.items()}

    return Signature(name, PREDICT_METHOD, specs(inputs), specs(outputs))


ONE = _signature(DEFAULT_SIGNATURE, {"x": "DT_FLOAT"}, {"y": "DT_FLOAT"})


def _says(text: str, status: int = 200) -> Callable[[Call], ModelAnswer]:
    return lambda _: ModelAnswer(status, text.encode())


def _upstream(reply: Callable[[Call], ModelAnswer], *signatures: Signature) -> FakeUpstream:
    return FakeUpstream({signature.name: signature for signature in signatures or (ONE,)}, reply)


def test_byte_order_mark_and_charset_are_taken_off() -> None:
    """TF Serving reads UTF-8 without a mark."""
    upstream = _upstream(_says('{"predictions": [1]}'))
    text = '{"instances": ["é"]}'
    answer(upstream, TARGET, b"\xef\xbb\xbf" + text.encode(), "application/json", None)
    answer(upstream, TARGET, text.encode("latin-1"), "application/json; charset=latin-1", None)
    assert [call.body for call in upstream.calls] == [text.encode(), text.encode()]


def test_record_with_an_input_called_inputs() -> None:
    """A refused object whose key is an input of the model is tried as one record."""
    signature = _signature(DEFAULT_SIGNATURE, {"inputs": "DT_FLOAT", "mask": "DT_INT64"}, {"y": "DT_FLOAT"})

    def server(call: Call) -> ModelAnswer:
        return (
            ModelAnswer(200, b'{"predictions": [4.5]}')
            if call.batch
            else ModelAnswer(400, b'{"error": "no"}')
        )

    upstream = _upstream(server, signature)
    reply = answer(upstream, TARGET, b'{"inputs": [1, 2], "mask": 1}', "application/json", "text/csv")
    assert reply.body == b"4.5\n"
    assert upstream.calls[1].json == {"instances": [{"inputs": [1.0, 2.0], "mask": 1}]}


@pytest.mark.parametrize("second", [400, 500])
def test_first_refusal_counts(second: int) -> None:
    signature = _signature(DEFAULT_SIGNATURE, {"instances": "DT_FLOAT"}, {"y": "DT_FLOAT"})

    def server(call: Call) -> ModelAnswer:
        return (
            ModelAnswer(second, b'{"error": "second"}')
            if call.batch
            else ModelAnswer(400, b'{"error": "first"}')
        )

    reply = answer(_upstream(server, signature), TARGET, b'{"instances": [1]}', None, None)
    assert (reply.status, reply.body) == (400, b'{"error": "first"}')


@pytest.mark.parametrize("method", ["classify", "regress"])
def test_classify_and_regress(method: str) -> None:
    upstream = _upstream(_says('{"results": [1.5, 2.5]}'))
    target = Target("m", method=method, signature="s")
    own = b'{"signature_name": "s", "examples": [{"x": 1}, {"x": 2}]}'
    assert answer(upstream, target, own, None, "text/csv").body == b"1.5\n2.5\n"
    for body in (b'[{"x": 1}, {"x": 2}]', b'{"x": 1}\n{"x": 2}'):
        assert answer(upstream, target, body, None, "application/jsonlines").body == b"1.5\n2.5\n"
    assert [call.json for call in upstream.calls] == [json.loads(own)] * 3
    with pytest.raises(UnsupportedMediaType, match="by name"):
        answer(upstream, target, b"1", "text/csv", None)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": "two\nlines \xff"}', "two\nlines \N{REPLACEMENT CHARACTER}"),
        (b"<html>404</html>", "The model server answered with status 404."),
        (b'{"error": {"code": 5}}', "The model server answered with status 404."),
        (b"", "The model server answered with status 404."),
        (b"[" * 100_000, "The model server answered with status 404."),
    ],
)
def test_odd_errors_become_json(body: bytes, text: str) -> None:
    reply = answer(_upstream(lambda _: ModelAnswer(404, body)), TARGET, b'{"instances": [1]}', None, None)
    assert json.loads(reply.body) == {"error": text}
    assert reply.status == 404


def test_decode_gives_arrays_to_write_to() -> None:
    """A script may change the arrays of any format in place."""
    plane = DataPlane(_upstream(_says("{}")))
    body = write_npy(np.array([1, 2], np.float32))
    for sent in (Body(body, "application/x-npy"), Body(b"[1, 2]")):
        batch = plane.decode(TARGET, sent)
        batch.inputs["x"][:] += 1
    assert read_npy(body).tolist() == [1, 2]


NORM = _signature("norm", {"x": "DT_FLOAT"}, {"label": "DT_STRING", "n": "DT_INT32"})


def test_no_second_try_without_such_an_input() -> None:
    """A refusal is final where no input has the key's name, or the record does not fit."""
    upstream = _upstream(_says('{"error": "first"}', 400))
    assert answer(upstream, TARGET, b'{"instances": ["a"]}', None, None).status == 400
    signature = _signature(DEFAULT_SIGNATURE, {"instances": "DT_FLOAT"}, {"y": "DT_FLOAT"})
    strict = _upstream(_says('{"error": "first"}', 400), signature)
    assert answer(strict, TARGET, b'{"instances": "a"}', None, None).status == 400
    assert len(upstream.calls) == len(strict.calls) == 1


def test_serving_form_as_lines_by_its_own_signature() -> None:
    """The signature that a body names says how its answer is read."""
    upstream = _upstream(_says('{"predictions": [{"n": 1, "label": "a"}]}'), ONE, NORM)
    body = b'{"signature_name": "norm", "instances": [1]}'
    assert answer(upstream, TARGET, body, None, "text/csv").body == b"a,1\n"


def test_column_form_as_lines() -> None:
    """The column form counts its records along the first axis of its inputs."""
    upstream = _upstream(_says('{"outputs": [2.5, 3.0]}'))
    for body in (b'{"inputs": [1, 2]}', b'{"inputs": {"x": [1, 2]}}'):
        assert answer(upstream, TARGET, body, None, "text/csv").body == b"2.5\n3.0\n"
