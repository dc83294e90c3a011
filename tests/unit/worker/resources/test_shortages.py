"""A request to one of many models that runs out of memory is a 507 on every way, and a single model's is not."""

import json
from typing import Any

import pytest

from support.fake_upstream import Call
from tfs_proxy.serving.upstream.interface import ModelAnswer
from unit.worker.resources.conftest import MakeFront

OOM = (
    "OOM when allocating tensor with shape[2000,1024,256] and type float on "
    "/job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu\n\t "
    "[[{{function_node __inference_run_932}}{{node random_uniform/RandomUniform}}]]\n"
)
"""Error of the embedded server under a limit of memory, with the status 429."""

SHORT: dict[str, Any] = {"status": 429, "body": json.dumps({"error": OOM}).encode()}
RECORD = b'{"instances": [1.0]}'


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (RECORD, {"Content_Type": "application/json"}),
        (b"[[1.0]]", {"Content_Type": "application/json"}),
        (b"1.0\n", {"Content_Type": "text/csv"}),
        (RECORD, {"X_Amzn_SageMaker_Custom_Attributes": "tfs-method=classify"}),
        (RECORD, {"Accept": "application/x-npy"}),
    ],
    ids=["as TF Serving's JSON", "as tensors", "as CSV", "classify", "for an array"],
)
def test_the_default_conversion(make_front: MakeFront, body: bytes, headers: dict[str, str]) -> None:
    assert make_front(loaded_as="half", **SHORT).refusal(507, body, **headers) == OOM


def test_the_second_way_of_a_request(make_front: MakeFront) -> None:
    """TF Serving's JSON can't carry the type, and the tensors that are sent instead are too many."""
    front = make_front(loaded_as="half")
    front.takes(x=("DT_HALF", (None,)))

    def answer(call: Call) -> ModelAnswer:
        return ModelAnswer(501, b'{"error": "no half"}') if call.batch is None else ModelAnswer(**SHORT)

    front.upstream.answer = answer

    assert front.refusal(507, RECORD) == OOM
    assert [call.batch is None for call in front.upstream.calls] == [True, False]


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        ("MemoryError()", 507),
        ("OSError(28, 'No space left on device')", 507),
        ("OutOfMemoryError('CUDA out of memory')", 507),
        ("OSError(2, 'No such file or directory')", 500),
        ("ValueError('OOM when allocating, says the client')", 500),
    ],
)
def test_a_script_that_runs_out_of_memory_itself(make_front: MakeFront, raised: str, status: int) -> None:
    """The class of its exception decides, not its text, which may be the client's."""
    script = (
        f"class OutOfMemoryError(RuntimeError): ...\n\n\ndef handler(data, context):\n    raise {raised}\n"
    )

    assert make_front(script, loaded_as="half").post(b"").status_code == status
    assert make_front(script).post(b"").status_code == 500


@pytest.mark.parametrize("status", [429, 503])
def test_a_full_queue_keeps_its_status(make_front: MakeFront, status: int) -> None:
    words = "The batch scheduling queue to which this task was submitted is full; currently 4"
    front = make_front(loaded_as="half", status=status, body=json.dumps({"error": words}).encode())
    assert front.refusal(status, RECORD) == words


def test_a_model_that_is_alone_keeps_the_model_servers_status(make_front: MakeFront) -> None:
    """Nobody could make room for it."""
    assert make_front(**SHORT).post(RECORD).status_code == 429
