"""Data capture of the whole stack: what is recorded, how many, and what a full or slow target does."""

import json
import os
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest

from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.capturing import body_of, captured, captured_files, written
from support.scraping import scrape
from support.small_disks import can_mount, on_small_disk
from support.stack import Stack, serving
from support.transform_command import S3_SETTINGS, s3_server

RECORDS = "tfs_proxy_capture_records_total"
SCRIPT = """
from tfs_proxy import Response


def handler(data, context):
    body = data.read()
    if body == b"stream":
        return (b"piece %d;" % number for number in range(3)), "text/plain"
    if body == b"flood":
        return (b"x" * 100_000 for _ in range(20)), "text/plain"
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
    """One line each, in a folder of the hour, with the encodings of the content types; errors are not."""
    target = tmp_path / "capture"
    with started(tmp_path, target) as stack:
        attributes = {
            "X_Amzn_SageMaker_Inference_Id": "id-1",
            "X_Amzn_SageMaker_Custom_Attributes": "trace=7",
        }
        assert stack.invoke("1.0,2.0\n", "text/csv", **attributes).status == 200
        assert stack.invoke('{"a": "ü"}'.encode()).status == 200
        assert stack.invoke(b"\x00\xff", "image/jpeg").status == 200
        assert stack.invoke("stream", "text/plain").body == b"piece 0;piece 1;piece 2;"
        assert stack.invoke("bad").status == 422
        assert stack.ask("POST", "/nowhere", "x").status == 404
        stack.wait_until(lambda: scrape(stack).total(RECORDS, outcome="written") == 4, "all are written")
        records = captured(target)

    table, document, picture, stream = records
    assert table["captureData"] == {
        "endpointInput": {
            "observedContentType": "text/csv",
            "mode": "INPUT",
            "data": "1.0,2.0\n",
            "encoding": "CSV",
        },
        "endpointOutput": {
            "observedContentType": "text/csv",
            "mode": "OUTPUT",
            "data": "1.0,2.0\n",
            "encoding": "CSV",
        },
    }
    metadata = table["eventMetadata"]
    assert (metadata["inferenceId"], metadata["customAttributes"]) == ("id-1", ["trace=7"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["inferenceTime"])
    assert table["eventVersion"] == "0"
    assert len({record["eventMetadata"]["eventId"] for record in records}) == 4
    assert "inferenceId" not in document["eventMetadata"]
    assert document["captureData"]["endpointInput"]["encoding"] == "JSON"
    assert document["captureData"]["endpointInput"]["data"] == '{"a": "ü"}'
    assert picture["captureData"]["endpointOutput"]["encoding"] == "BASE64"
    assert body_of(picture) == body_of(picture, "endpointOutput") == b"\x00\xff"
    assert body_of(stream, "endpointOutput") == b"piece 0;piece 1;piece 2;"
    file = captured_files(target)[0]  # an hour may have begun since then
    hour = metadata["inferenceTime"][:13].replace("-", "/").replace("T", "/")
    assert file.relative_to(target).parent == Path("m", "AllTraffic", hour)
    assert re.fullmatch(r"\d\d-\d\d-\d{3}-[0-9a-f-]{36}\.jsonl", file.name)


@pytest.mark.parametrize("worker_class", CLASSES)
def test_every_worker_class_records_every_request(tmp_path: Path, worker_class: str) -> None:
    """As many records as answers, each with what belongs together, also those right before the end."""
    target = tmp_path / "capture"
    env = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class, **without_nginx()}
    with started(tmp_path, target, TFS_PROXY_CAPTURE_NAME="shop", **env) as stack:
        with ThreadPoolExecutor(8) as clients:
            bodies = [f"[{number}]" for number in range(200)] + ["stream"]
            answers = list(clients.map(stack.invoke, bodies))
        assert stack.stop() == 0

    assert {answer.status for answer in answers} == {200}
    records = captured(target / "shop" / "AllTraffic")
    assert Counter(map(body_of, records)) == Counter(body.encode() for body in bodies)
    assert all(body_of(record) in {body_of(record, "endpointOutput"), b"stream"} for record in records)


def test_only_one_side_is_kept(tmp_path: Path) -> None:
    """As TFS_PROXY_CAPTURE_KEEP says."""
    target = tmp_path / "capture"
    with started(tmp_path, target, TFS_PROXY_CAPTURE_KEEP="output", **without_nginx()) as stack:
        stack.invoke("[1]")
        stack.stop()

    assert [list(record["captureData"]) for record in captured(target)] == [["endpointOutput"]]


@pytest.mark.slow
@NEEDS_NGINX
@pytest.mark.tensorflow
def test_nginx_sends_the_chosen_share_through_the_workers(saved_models: Path, tmp_path: Path) -> None:
    """A share of all requests, no more and no fewer; the answers are the same, and no client chooses."""
    env = {
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two",
        "TFS_PROXY_CAPTURE": str(tmp_path),
        "TFS_PROXY_CAPTURE_PERCENT": "25",
    }
    with serving(str(saved_models), "--model-server", "embedded", env=env) as stack:
        with ThreadPoolExecutor(4) as clients:
            body = '{"instances": [1.0, 2.0, 5.0]}'
            mark = {"X_Tfs_Proxy_Capture": "1"}
            answers = list(clients.map(lambda _: stack.invoke(body, **mark), range(300)))
        stack.stop()

    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    records = captured(tmp_path)
    assert 38 <= len(records) <= 112  # 75, and five standard deviations
    assert {body_of(record, "endpointOutput") for record in records} == {answers[0].body}


def test_without_nginx_the_worker_chooses_the_share(tmp_path: Path) -> None:
    """By itself, whatever a client's header says."""
    target = tmp_path / "capture"
    with started(tmp_path, target, TFS_PROXY_CAPTURE_PERCENT="25", **without_nginx()) as stack:
        for _ in range(200):
            stack.invoke("[1]", X_Tfs_Proxy_Capture="1")
        stack.stop()

    assert 20 <= len(captured(target)) <= 80


def test_what_is_too_large_is_answered_and_counted(tmp_path: Path) -> None:
    """Bodies and streams over the limit, which bounds the files, too."""
    target = tmp_path / "capture"
    with started(tmp_path, target, TFS_PROXY_CAPTURE_MAX_MB="1") as stack:
        assert stack.invoke(b"large" * 300_000, "text/csv").status == 200
        assert len(stack.invoke("flood").body) == 2_000_000
        for number in range(1, 7):  # two at once would be more than may wait
            assert stack.invoke(b"large" + b"x" * 300_000, "text/csv").status == 200
            stack.wait_until(lambda: written(target) == number, f"{number} are written")  # noqa: B023
        stack.wait_until(lambda: scrape(stack).total(RECORDS, outcome="too_large") == 2, "two are too large")
        stack.stop()

    assert len(captured(target)) == 6
    assert len(captured_files(target)) > 1
    assert all(file.stat().st_size <= 1024 * 1024 for file in captured_files(target))


def test_a_target_that_can_not_be_written_ends_the_start(tmp_path: Path) -> None:
    """With a sentence, since nobody would look for records that are not there."""
    (tmp_path / "file").touch()
    stack = Stack(*stand_in_words(tmp_path, SCRIPT), env={"TFS_PROXY_CAPTURE": f"{tmp_path}/file/below"})
    with closing(stack):
        assert stack.wait() == 2
        assert f"TFS_PROXY_CAPTURE={tmp_path}/file/below can't be used: Not a directory" in stack.log


@pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here")
def test_a_full_disk_costs_records_and_no_answers(tmp_path: Path) -> None:
    """What has no room is dropped and counted; what is there stays readable."""
    target = tmp_path / "full"
    target.mkdir()
    stack = Stack(
        *stand_in_words(tmp_path, SCRIPT),
        env={"TFS_PROXY_CAPTURE": str(target), "SAGEMAKER_GUNICORN_WORKERS": "1", **without_nginx()},
        launcher=on_small_disk(target, 1),
    )
    with closing(stack):
        stack.wait_ready()
        for _ in range(30):
            assert stack.invoke(b"large" + b"x" * 100_000, "text/csv").status == 200
        stack.wait_until(lambda: scrape(stack).total(RECORDS) == 30, "all are counted")
        dropped = scrape(stack).total(RECORDS, outcome="dropped")
        # The small disk is seen only by the processes of the run.
        records = captured(Path(f"/proc/{stack.process.pid}/root{target}"))

    assert dropped > 0
    assert len(records) == 30 - dropped
    assert re.search(r"records are dropped: .*No space left on device", stack.log)


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


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """S3 in a process of its own."""
    with s3_server() as address:
        yield address


@pytest.mark.parametrize("worker_class", ["gthread", "gevent"])
def test_s3_gets_objects_in_the_same_layout(
    tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch, worker_class: str
) -> None:
    """At the latest when the run ends; until then records wait in memory."""
    env = {**S3_SETTINGS, "AWS_ENDPOINT_URL_S3": moto}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    s3, bucket = boto3.client("s3"), f"capture-{worker_class}"
    s3.create_bucket(Bucket=bucket)
    env["SAGEMAKER_GUNICORN_WORKER_CLASS"] = worker_class
    with started(tmp_path, f"s3://{bucket}/run", **env, **without_nginx()) as stack:
        for number in range(10):
            assert stack.invoke(f"[{number}]").status == 200
        assert stack.stop() == 0

    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert all(re.fullmatch(r"run/m/AllTraffic/\d{4}/\d\d/\d\d/\d\d/[0-9a-f-]+\.jsonl", key) for key in keys)
    content = b"".join(s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys)
    records = [json.loads(line) for line in content.splitlines()]
    assert [body_of(record) for record in records] == [f"[{number}]".encode() for number in range(10)]


@pytest.mark.slow
def test_an_s3_that_is_silent_costs_records_and_no_answers(tmp_path: Path) -> None:
    """Memory is bounded, what has no room is counted while S3 hangs, and the end does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {**S3_SETTINGS, "AWS_ENDPOINT_URL_S3": address, "TFS_PROXY_CAPTURE_MAX_MB": "1"}
        with started(tmp_path, "s3://bucket", **env, **without_nginx()) as stack:
            for _ in range(12):
                assert stack.invoke(b"large" + b"x" * 300_000, "text/csv").status == 200
            stack.wait_until(lambda: scrape(stack).total(RECORDS, outcome="dropped") > 0, "some are dropped")
            assert stack.stop() == 0
            log = stack.log

    assert "are lost: they were not written within 5 s" in log
