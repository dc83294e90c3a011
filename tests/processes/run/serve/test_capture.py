"""Data capture of the whole stack: what is recorded, how many, and what a full disk does."""

import os
import re
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.archives import NEEDS_NGINX, pack, stand_in_words, without_nginx
from support.capturing import body_of, captured, captured_files, written
from support.scraping import scrape
from support.small_disks import can_mount, on_small_disk
from support.stack import ended, serving

RECORDS = "tfs_proxy_capture_records_total"
SCRIPT = """
from tfs_proxy import Response


def handler(data, context):
    body = data.read()
    if body == b"stream":
        return (b"piece %d;" % number for number in range(3)), "text/plain"
    if body == b"bad":
        return Response(b'{"error": "no"}', "application/json", status=422)
    if body.startswith(b"large"):
        return b"", "text/csv"
    return body, context.request_content_type or "application/json"
"""


CLASSES = ("gthread", "sync", "gevent")


def started(tmp_path: Path, target: str | Path, **env: str) -> Any:
    """A stack whose script echoes, and that captures into ``target``."""
    settings = {"SAGEMAKER_GUNICORN_WORKERS": "1", "TFS_PROXY_CAPTURE": str(target), **env}
    return serving(*stand_in_words(tmp_path, SCRIPT), env=settings)


def test_a_request_and_its_answer_are_recorded_as_sagemaker_does(tmp_path: Path) -> None:
    """One line each, with the encodings of the content types; errors are not."""
    target = tmp_path / "capture"
    with started(tmp_path, target) as stack:
        attributes = {
            "X_Amzn_SageMaker_Inference_Id": "id-1",
            "X_Amzn_SageMaker_Custom_Attributes": "trace=7",
        }
        assert stack.invoke("1.0,2.0\n", "text/csv", **attributes).status == 200
        assert stack.invoke("stream", "text/plain").body == b"piece 0;piece 1;piece 2;"
        assert stack.invoke("bad").status == 422
        assert stack.ask("POST", "/nowhere", "x").status == 404
        stack.wait_until(lambda: scrape(stack).total(RECORDS, outcome="written") == 2, "both are written")
        by_id = sorted(captured(target), key=lambda each: "inferenceId" not in each["eventMetadata"])
        table, stream = by_id

    side = {"observedContentType": "text/csv", "data": "1.0,2.0\n", "encoding": "CSV"}
    assert table["captureData"] == {
        "endpointInput": {**side, "mode": "INPUT"},
        "endpointOutput": {**side, "mode": "OUTPUT"},
    }
    metadata = table["eventMetadata"]
    assert (metadata["inferenceId"], metadata["customAttributes"]) == ("id-1", ["trace=7"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["inferenceTime"])
    assert table["eventVersion"] == "0"
    assert metadata["eventId"] != stream["eventMetadata"]["eventId"]
    assert "inferenceId" not in stream["eventMetadata"]
    assert body_of(stream, "endpointOutput") == b"piece 0;piece 1;piece 2;"
    assert re.fullmatch(r"[\d-]{10}T[\d-]{8}Z-[0-9a-f]{32}\.jsonl", captured_files(target)[0].name)


@pytest.mark.parametrize("worker_class", CLASSES)
def test_every_worker_class_records_every_request(tmp_path: Path, worker_class: str) -> None:
    """As many records as answers, each with what belongs together, also those right before the end."""
    target = tmp_path / "capture"
    env = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class, **without_nginx()}
    with started(tmp_path, target, **env) as stack:
        with ThreadPoolExecutor(8) as clients:
            bodies = [f"[{number}]" for number in range(200)] + ["stream"]
            answers = list(clients.map(stack.invoke, bodies))
        assert stack.stop() == 0

    assert {answer.status for answer in answers} == {200}
    records = captured(target)
    assert Counter(map(body_of, records)) == Counter(body.encode() for body in bodies)
    assert all(body_of(record) in {body_of(record, "endpointOutput"), b"stream"} for record in records)


@pytest.mark.slow
@NEEDS_NGINX
@pytest.mark.tensorflow
@pytest.mark.parametrize("is_one", [True, False], ids=["one archive", "many models"])
def test_no_request_passes_the_workers(saved_models: Path, tmp_path: Path, is_one: bool) -> None:
    """The answers are those of the fast path, and each has its record."""
    env = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two", "TFS_PROXY_CAPTURE": str(tmp_path)}
    (tmp_path / "models").mkdir()
    archive = pack(tmp_path / "models" / "m.tar.gz", {}, {"m": saved_models / "half_plus_two"})
    words = [str(saved_models)] if is_one else ["--multi-model", str(archive.parent)]
    target = {} if is_one else {"X-Amzn-SageMaker-Target-Model": archive.name}
    with serving(*words, "--model-server", "embedded", env=env) as stack:
        body = '{"instances": [1.0, 2.0, 5.0]}'
        answers = [stack.invoke(body, **target) for _ in range(5)]
        stack.stop()

    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    records = captured(tmp_path if is_one else tmp_path / "m")
    assert [body_of(record, "endpointOutput") for record in records] == [answers[0].body] * 5


@pytest.mark.parametrize(
    ("target", "reason"),
    [("s3://bucket/prefix", "it must be a folder: `aws s3 sync`"), ("{}/file/below", "Not a directory")],
)
def test_a_target_that_can_not_be_written_ends_the_start(tmp_path: Path, target: str, reason: str) -> None:
    """With a sentence, since nobody would look for records that are not there."""
    (tmp_path / "file").touch()
    target = target.format(tmp_path)
    status, log = ended(*stand_in_words(tmp_path, SCRIPT), env={"TFS_PROXY_CAPTURE": target})
    assert status == 2
    assert f"TFS_PROXY_CAPTURE={target} can't be used: {reason}" in log


@pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here")
def test_a_full_disk_costs_records_and_no_answers(tmp_path: Path) -> None:
    """What has no room is dropped and counted; what is there stays readable."""
    target = tmp_path / "full"
    target.mkdir()
    env = {"TFS_PROXY_CAPTURE": str(target), **without_nginx()}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env, launcher=on_small_disk(target, 1)) as stack:
        for _ in range(30):
            assert stack.invoke(b"large" + b"x" * 100_000, "text/csv").status == 200
        stack.wait_until(lambda: scrape(stack).total(RECORDS) == 30, "all are counted")
        dropped = scrape(stack).total(RECORDS, outcome="dropped")
        # The small disk is seen only by the processes of the run.
        records = captured(Path(f"/proc/{stack.process.pid}/root{target}"))

    assert dropped > 0
    assert len(records) == 30 - dropped
    assert re.search(r"were dropped so far: .*No space left on device", stack.log)


def test_a_killed_worker_leaves_whole_lines(tmp_path: Path) -> None:
    """What was answered before is in the file, and the next worker writes another one."""
    target = tmp_path / "capture"
    with started(tmp_path, target) as stack:
        for number in range(20):
            stack.invoke(f"[{number}]")
        stack.wait_until(lambda: written(target) == 20, "all are in the file")
        before = scrape(stack).total("tfs_proxy_worker_starts_total")
        os.kill(stack.workers()[-1], signal.SIGKILL)
        stack.wait_until(
            lambda: stack.is_ready() and scrape(stack).total("tfs_proxy_worker_starts_total") > before,
            "another worker serves",
        )
        stack.wait_until(lambda: stack.invoke("[20]").status == 200, "it answers")
        stack.stop()

    assert {body_of(record) for record in captured(target)} == {f"[{n}]".encode() for n in range(21)}
    assert len(captured_files(target)) > 1
