"""HTTP of the whole stack: real nginx, real gunicorn, the real embedded model server."""

import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from support import gates
from support.archives import NEEDS_NGINX, pack
from support.stack import Stack, serving

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]

SCRIPT = f"""{gates.SCRIPT}
import json

from helper_beside import MARK


def input_handler(data, context):
    text = data.read().decode()
    if context.request_content_type == "text/x-held":
        hold(text)
        return json.dumps({{"instances": [1.0]}})
    return text


def output_handler(response, context):
    if response.status_code != 200:
        raise ValueError(response.content.decode())
    return json.dumps({{"mark": MARK, **response.json()}}), context.accept_header
"""
WORKERS, THREADS = 2, 4
SECONDS = 60.0


@pytest.fixture(scope="module")
def scripted(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One model behind a script that imports a module beside it."""
    archive = pack(
        tmp_path_factory.mktemp("scripted") / "model.tar.gz",
        {"code/inference.py": SCRIPT, "code/helper_beside.py": "MARK = 'seen'\n"},
        {"export/Servo": saved_models / "half_plus_two"},
    )
    threads = {"SAGEMAKER_GUNICORN_WORKERS": str(WORKERS), "SAGEMAKER_GUNICORN_THREADS": str(THREADS)}
    with serving(str(archive), "--model-server", "embedded", env=threads) as running:
        yield running


@pytest.mark.parametrize("accept", ["application/json", "application/jsonlines", "text/csv"])
def test_answers_read_back_to_the_same_floats(served: Stack, accept: str) -> None:
    """No digit of a float32 is lost, whatever the answer's type."""
    sent = [1111111.0, 0.3333333333, 1764093056.0, 1e-7, 3.4e38]
    headers = {"Content-Type": "application/json", "Accept": accept}
    answer = served.ask("POST", "/invocations", json.dumps({"instances": sent}), headers)

    numbers = (
        answer.json["predictions"]
        if accept == "application/json"
        else map(float, answer.body.split(b"\n")[:5])
    )
    want = np.array(sent, np.float32) * np.float32(0.5) + np.float32(2)
    assert np.array(list(numbers), np.float32).tolist() == want.tolist()


@pytest.mark.parametrize(
    "body",
    ['{"instances": [1.0]}', '{"instances": ["a"]}', "[1.0]", '{"inputs": [1.0]}', '{"inputs": {"x": "a"}}'],
)
def test_json_that_is_asked_for_is_one_line(served: Stack, body: str) -> None:
    """Errors too; for any type it is as the model server has it."""
    one = served.invoke(body, Accept="application/json")
    assert b"\n" not in one.body
    for more in ({}, {"Accept": "*/*"}):
        other = served.invoke(body, **more)
        assert one.body == other.body.replace(b"\n", b"")
        assert one.status == other.status
        assert b"\n" in other.body or one.status != 200


def test_a_label_chooses_a_version(served: Stack) -> None:
    """SAGEMAKER_TFS_VERSION_LABELS and tfs-model-label."""
    for label, y in (("stable", 2.5), ("canary", 3.5)):
        attributes = f"tfs-model-name=versions,tfs-model-label={label}"
        answer = served.invoke('{"instances": [1.0]}', **{"X-Amzn-SageMaker-Custom-Attributes": attributes})
        assert answer.json == {"predictions": [y]}


def test_a_signature_is_chosen_by_attribute(served: Stack) -> None:
    """tfs-signature-name, for JSON and for CSV."""
    attributes = {"X-Amzn-SageMaker-Custom-Attributes": "tfs-model-name=multi_io,tfs-signature-name=norm"}

    assert served.invoke('{"instances": [[3, 4, 0]]}', **attributes).json == {"predictions": [5.0]}
    assert served.invoke("3,4,0\n", "text/csv", **attributes).json == {"predictions": [5.0]}


def test_a_script_of_two_halves_sees_request_and_answer(scripted: Stack) -> None:
    """Modules beside the script import; the answer's type is what the script says."""
    answer = scripted.invoke('{"instances": [1.0]}', Accept="application/json")

    assert (answer.status, answer.json) == (200, {"mark": "seen", "predictions": [2.5]})
    assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        ("", "application/json", "document is empty"),
        ("{nonsense", "application/json", "JSON Parse error"),
        ('{"instances": [["a"]]}', "application/json", "DT_FLOAT takes numbers"),
        ("1.0,2.0", "text/csv", "Is not object"),
    ],
)
def test_what_the_model_server_refuses_keeps_its_status_through_the_script(
    scripted: Stack, body: str, content_type: str, words: str
) -> None:
    """The script sees the error and raises; the client gets the model server's 400, not a 500."""
    answer = scripted.invoke(body, content_type)

    assert answer.status == 400
    assert words in answer.json["error"]


def test_ping_answers_at_once_while_every_worker_is_busy(scripted: Stack, tmp_path: Path) -> None:
    """64 requests at a gate; /ping within 100 ms, with a margin of 4, as the supervisor answers it itself.

    The median counts: a machine that others use stands still now and then, whoever answers.
    """
    seconds = []
    with ThreadPoolExecutor(64) as pool, gates.gate(tmp_path / "gate") as held:
        slow = [pool.submit(scripted.invoke, held.mark(f"{number}"), "text/x-held") for number in range(64)]
        held.wait_for(WORKERS * THREADS)
        for _ in range(20):
            began = time.monotonic()
            assert scripted.ask("GET", "/ping").status == 200
            seconds.append(time.monotonic() - began)
        held.open()
        assert {request.result().status for request in slow} == {200}

    assert statistics.median(seconds) < 0.1 * 4
