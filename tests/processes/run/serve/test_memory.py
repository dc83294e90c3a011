"""What a request may cost: gzip and JSON that become too much, and large requests side by side."""

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import stand_in_words
from support.running import Answer
from support.stack import Stack, serving
from tfs_proxy.data.formats.framing import recordio_frame
from tfs_proxy.wire.protos import RecordIORecord

pytestmark = pytest.mark.tensorflow

BOMBS = {
    "zeros as JSON": (b"[" + b"0," * 2_000_000 + b"0]", "application/json"),
    "zeros as CSV": (b"0," * 2_000_000 + b"0\n", "text/csv"),
    "lists in an object": (b'{"a":[' + b"[]," * 1_000_000 + b"[]]}", "application/json"),
    "lines": (b"[1]\n" * 500_000, "application/jsonlines"),
}
LIMITS = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "5", "TFS_PROXY_MAX_DECODED_TOTAL_MB": "20"}


@pytest.fixture(scope="module")
def stack(saved_models: Path) -> Iterator[Stack]:
    """A small model with small limits."""
    with serving(str(saved_models / "half_plus_two"), "--model-server", "embedded", env=LIMITS) as running:
        yield running


@pytest.mark.parametrize("name", BOMBS)
def test_what_becomes_too_much_is_refused_by_the_setting_name(stack: Stack, name: str) -> None:
    """A few KB of gzip are within the limit of a body, and so is what they unpack to; its values are not."""
    body, content_type = BOMBS[name]

    answer = stack.invoke(gzip.compress(body), content_type, Content_Encoding="gzip")

    assert answer.status == 413
    assert "MB of memory, and 20 MB are there: TFS_PROXY_MAX_DECODED_TOTAL_MB" in answer.json["error"]


def test_a_declared_shape_is_counted_before_it_is_filled(stack: Stack) -> None:
    """Thirty-two bytes of a sparse tensor."""
    record = RecordIORecord()
    tensor = record.features["x"].float32_tensor
    tensor.values[:], tensor.keys[:], tensor.shape[:] = [1], [0], [26_000_000]

    answer = stack.invoke(recordio_frame(record.SerializeToString()), "application/x-recordio-protobuf")

    assert answer.status == 413
    assert "TFS_PROXY_MAX_DECODED_TOTAL_MB" in answer.json["error"]


@pytest.mark.slow
def test_28_mb_of_short_numbers_are_taken(saved_models: Path) -> None:
    """With what two workers and a small model leave of 4 GB."""
    numbers, env = "1," * 13_999_999 + "1", {"TFS_PROXY_MAX_DECODED_TOTAL_MB": "1660"}
    tensor = f'{{"name": "x", "shape": [14000000], "datatype": "FP32", "data": [{numbers}]}}'
    with serving(str(saved_models / "half_plus_two"), "--model-server", "embedded", env=env) as stack:
        assert stack.invoke(f'{{"instances": [{numbers}]}}').status == 200
        assert stack.invoke(f'{{"inputs": [{tensor}]}}').status == 200


HOLDING_SCRIPT = f"""{gates.SCRIPT}
def handler(data, context):
    hold(context.custom_attributes)
    return "{{}}", "application/json"
"""
LARGE_BODY = b" " * 4_900_000
FITTING = 3


@pytest.mark.slow
def test_large_requests_that_do_not_fit_together_are_refused_for_a_while(tmp_path: Path) -> None:
    """They wait a little, then get a 503 that says when to come back; small ones are answered."""
    env = {**LIMITS, "TFS_PROXY_MAX_DECODED_TOTAL_MB": "32", "SAGEMAKER_GUNICORN_WORKERS": "2"}
    with (
        serving(*stand_in_words(tmp_path, HOLDING_SCRIPT), env=env) as stack,
        gates.gate(tmp_path / "gate") as held,
        ThreadPoolExecutor(FITTING) as threads,
    ):

        def invoke(body: bytes, name: str) -> Answer:
            return stack.invoke(body, X_Amzn_SageMaker_Custom_Attributes=held.mark(name))

        fitting = [threads.submit(invoke, LARGE_BODY, f"large-{number}") for number in range(FITTING)]
        held.wait_for(FITTING)
        refused = invoke(LARGE_BODY, "refused")
        held.open()
        answers = [answer.result().status for answer in fitting]
        small = invoke(b"{}", "small")
        again = invoke(LARGE_BODY, "again")

    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "TFS_PROXY_MAX_DECODED_TOTAL_MB" in refused.json["error"]
    assert answers == [200] * FITTING
    assert (small.status, again.status) == (200, 200)
