"""A pipeline as a user runs it: real stages, each a serving stack of its own, and the endpoint in front."""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support import gates
from support.archives import pack, without_nginx
from support.building import ROOT
from support.capturing import body_of, captured
from support.collector import Collector, collector
from support.processes import descendants, is_running, wait_until_ended
from support.running import Answer
from support.scraping import scrape, scrape_open_metrics
from support.stack import Stack
from support.waiting import wait_until

TOLD = (
    gates.SCRIPT
    + '''
import json, os
import tfs_proxy

NUMBER = os.environ["STAGE"]

def model_fn(model_dir):
    if "GATE" in os.environ:
        hold(os.environ["GATE"])
    return NUMBER

def transform_fn(model, data, content_type, accept, context):
    """Do what the body tells this stage, and note what it saw; the last stage shows all notes."""
    document = json.loads(data)
    mine = document.get(NUMBER, {})
    time.sleep(mine.get("sleep", 0))
    if "hold" in mine:
        hold(mine["hold"])
    if "raise" in mine:
        raise ValueError(mine["raise"])
    if "status" in mine:
        raise tfs_proxy.HTTPError(mine["status"], "refused")
    headers = {name.lower(): value for name, value in context.headers.items() if name.lower().startswith("x-")}
    note = {"type": content_type, "accept": accept, "accept_header": context.accept_header, "headers": headers}
    note["port"] = os.environ["SAGEMAKER_BIND_TO_PORT"]
    document.setdefault("seen", []).append(note)
    document["padding"] = "x" * mine.get("size", 0)
    context.set_custom_attributes(f"stage={NUMBER}")
    return json.dumps(document), mine.get("type", f"application/x-stage{NUMBER}; a=b")
'''
)
LIMITS = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2"}


def archives(folder: Path) -> list[str]:
    """Two stages of one script."""
    names = [folder / f"part-{number}.tar.gz" for number in (1, 2)]
    return [str(pack(name, {"code/inference.py": TOLD})) for name in names]


@contextlib.contextmanager
def pipeline(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A pipeline of stages that do what a body orders, stopped at the end."""
    numbers = [word for number in (1, 2) for word in ("--env", f"{number}:STAGE={number}")]
    light = {"SAGEMAKER_GUNICORN_WORKERS": "1", **without_nginx(), **(env or {})}
    stack = Stack(*archives(folder), *numbers, *words, env=light)
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.close()


@pytest.fixture(scope="module")
def received() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, received: Collector) -> Iterator[Stack]:
    """One pipeline for all tests that leave it as it is, behind nginx if that is installed."""
    env = {**LIMITS, **received.env, "TFS_PROXY_NGINX": "true"}
    with pipeline(tmp_path_factory.mktemp("pipeline"), env=env) as stack:
        yield stack


def tell(stack: Stack, orders: Mapping[str, Any] | None = None, **headers: str) -> Answer:
    """One request with orders by stage."""
    return stack.invoke(json.dumps(orders or {}), **headers)


@pytest.mark.parametrize(("path", "status"), [("/ping", 0), ("/live", 0), ("/v2/health/live", 1)])
def test_the_images_health_check_asks_the_pipeline_and_no_stage(
    running: Stack, path: str, status: int
) -> None:
    """It finds the port in the run's folder; only stages have the protocol."""
    command = [str(ROOT / "container" / "healthcheck"), path]
    done = subprocess.run(command, env={**os.environ, "TFS_PROXY_HOME": str(running.home)}, check=False)

    assert done.returncode == status


def test_body_and_type_go_on_and_accept_goes_to_the_last(running: Stack) -> None:
    """As docs/reference/sagemaker.md says of pipelines; each stage has a port of its own."""
    sent = {"X_Amzn_SageMaker_Inference_Id": "id-7", "X_Other": "no"}
    answer = tell(running, {"1": {"type": "text/csv"}}, Accept="text/plain", **sent)

    first, second = answer.json["seen"]
    assert (first["type"], first["accept_header"]) == ("application/json", None)
    assert (second["type"], second["accept"]) == ("text/csv", "text/plain")
    assert answer.headers["content-type"] == "application/x-stage2; a=b"
    ids = {note["headers"]["x-request-id"] for note in (first, second)}
    assert ids == {answer.headers["x-request-id"]} == {"id-7"}
    assert all("x-amzn-sagemaker-inference-id" in note["headers"] for note in (first, second))
    assert all("x-other" not in note["headers"] for note in (first, second))
    assert answer.headers["x-amzn-sagemaker-custom-attributes"] == "stage=2"
    ports = {first["port"], second["port"]}
    assert len(ports) == 2
    assert str(running.port) not in ports


@pytest.mark.parametrize(
    ("orders", "status", "words"),
    [
        ({"1": {"raise": "no column"}}, 500, r"stage 1 (part-1.tar.gz) answered 500: ValueError: no column"),
        ({"2": {"status": 422}}, 422, r"stage 2 (part-2.tar.gz) answered 422: refused"),
        (
            {"1": {"size": 5_500_000}},
            413,
            (
                "stage 1 (part-1.tar.gz) gave too large an answer: its answer has 5.2 MB, and at most 5 MB go on to "
                "the next stage"
            ),
        ),
    ],
)
def test_a_failing_stage_is_named(running: Stack, orders: Mapping[str, Any], status: int, words: str) -> None:
    """424 as SageMaker's ModelError, with the stage's status and words; also for size."""
    answer = tell(running, orders)
    assert answer.status == 424
    assert answer.json["error"].startswith(words)
    assert answer.json["OriginalStatusCode"] == status
    assert answer.json["OriginalMessage"] in answer.json["error"]


def test_each_stage_makes_its_span_in_the_client_s_trace(running: Stack, received: Collector) -> None:
    """The pipeline itself makes none, and passes on the headers."""
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    assert tell(running, traceparent=f"00-{trace}-{parent}-01").status == 200

    def servers() -> list[str]:
        return [span.parent_id for span in received.servers() if span.trace_id == trace]

    wait_until(lambda: len(servers()) >= 2, 60, "both stages' spans are here")
    assert servers() == [parent] * 2
    spans = {span.name for span in received.spans if span.trace_id == trace}
    assert spans == {"POST /invocations", "read", "transform_fn"}


def test_many_requests_at_once_get_their_own_answers(running: Stack) -> None:
    """Connections to the stages are shared, answers are not."""
    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(lambda number: tell(running, {"number": number}), range(96)))

    assert [answer.json["number"] for answer in answers] == list(range(96))


def test_metrics_of_all_stages_are_together(running: Stack) -> None:
    """Each stage's with its number, and the requests of the pipeline's own clients as those of all.

    A stage counts a request after its answer, so these have a status that no other test's have.
    """
    name, teapot = "http_server_request_duration_seconds_count", {"http_response_status_code": "418"}
    before = scrape(running)
    for stage in ("1", "2", "2"):
        assert tell(running, {stage: {"status": 418}}).json["OriginalStatusCode"] == 418
    running.wait_until(
        lambda: sum(scrape(running).total(name, stage=stage, **teapot) for stage in ("1", "2")) >= 3,
        "the stages count",
    )
    after = scrape_open_metrics(running)

    assert [after.total(name, stage=stage, **teapot) for stage in ("1", "2", "all")] == [1, 2, 0]
    assert after.total(name, stage="all") - before.total(name, stage="all") == 3
    assert after.total("tfs_proxy_pipeline_stage_up") == 2
    assert after.total("tfs_proxy_ready", stage="1") == 1
    assert [value for _, value in after.values("tfs_proxy_requests_in_flight", stage="all")] == [0]


def test_a_hop_ends_with_its_client(running: Stack, tmp_path: Path) -> None:
    """While the stage works on it; that does not send it on, and each counts it once."""

    def gone() -> list[float]:
        name, left = "http_server_request_duration_seconds_count", {"http_response_status_code": "499"}
        return [scrape(running).total(name, stage=stage, **left) for stage in ("all", "1", "2")]

    with gates.gate(tmp_path / "gate") as held:
        with socket.create_connection((running.host, running.port)) as link:
            body = json.dumps({"1": {"hold": held.mark()}}).encode()
            link.sendall(
                b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            held.wait_for()
        running.wait_until(lambda: gone() == [1, 1, 0], "the pipeline and its stage count it")
        held.open()


def test_a_body_over_the_limit_is_a_413_that_the_client_sees(running: Stack) -> None:
    """Whether it is sent in full, or only declared."""
    sent = running.invoke(b" " * 2_200_000)
    declared = running.raw(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\n\r\n{}")

    assert sent.status == 413
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in sent.json["error"]
    assert declared.startswith(b"HTTP/1.1 413")


def test_a_stage_that_dies_is_named_and_comes_back(tmp_path: Path) -> None:
    """Killed with -9: /ping and requests name it, then it serves again; the log sums up."""
    with gates.gate(tmp_path / "gate") as held, concurrent.futures.ThreadPoolExecutor(1) as pool:
        held.open()
        with pipeline(tmp_path, "--env", f"2:GATE={held.mark('start')}") as stack:
            [second] = [
                pid
                for pid in descendants(stack.process.pid)
                if b"part-2.tar.gz" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
            held.shut()  # it does not come back before it has been missed
            sent = pool.submit(tell, stack, {"2": {"hold": held.mark("request")}})
            held.wait_for(2)
            os.kill(second, signal.SIGKILL)
            answer = sent.result()
            ping = stack.ask("GET", "/ping")
            held.open()
            stack.wait_ready()
            again = tell(stack)
            assert stack.stop() == 0

    assert answer.status == 424
    assert answer.json["error"].startswith("stage 2 (part-2.tar.gz)")
    assert ping.status == 503
    assert ping.json["error"].startswith("stage 2 (part-2.tar.gz)")
    assert "status=424 duration_ms=" in stack.log
    assert again.status == 200
    assert "stage 2 (part-2.tar.gz) ended with SIGKILL" in stack.log
    ended = [line for line in stack.log.splitlines() if "requests answered" in line]
    counts = [[int(number) for number in re.findall(r"(\d+)(?: requests| of| not)", line)] for line in ended]
    assert [numbers[1:] for numbers in counts] == [[0, 0, 0], [0, 1, 0]]
    assert counts[0][0] == counts[1][0] + 1


def test_sigterm_lets_requests_through_all_stages_finish(tmp_path: Path) -> None:
    """A request in the first stage still gets the last one's answer; then everything is gone."""
    with (
        pipeline(tmp_path) as stack,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        gates.gate(tmp_path / "gate") as held,
    ):
        slow = pool.submit(tell, stack, {"1": {"hold": held.mark()}})
        held.wait_for()
        processes = list(descendants(stack.process.pid))
        stack.process.send_signal(signal.SIGTERM)
        stack.wait_for_log("SIGTERM: stopping")
        stack.process.send_signal(signal.SIGTERM)
        stack.wait_for_log("SIGTERM again changes nothing")
        held.open()
        assert stack.wait() == 0
        answer = slow.result()

    assert answer.status == 200
    assert len(answer.json["seen"]) == 2
    assert (
        "stage 1 (part-1.tar.gz): 1 requests answered, 0 of them refused; 0 not answered, 0 not reached; p50"
        in stack.log
    )
    assert [pid for pid in processes if is_running(pid)] == []


def test_a_request_that_the_time_to_stop_is_too_short_for_is_counted(tmp_path: Path) -> None:
    """As by a single archive: the log's last line says so, and the exit status."""
    with (
        pipeline(tmp_path, env={"TFS_PROXY_STOP_SECONDS": "0.5"}) as stack,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        gates.gate(tmp_path / "gate") as held,
    ):
        pool.submit(tell, stack, {"1": {"hold": held.mark()}})
        held.wait_for()
        assert stack.stop() == 7
    assert "requests in flight that were cut off: 1 (TFS_PROXY" in stack.log.splitlines()[-1]


def test_no_process_is_left_of_a_pipeline_that_is_killed(tmp_path: Path) -> None:
    """With -9, so that it can't stop its stages itself: they and their workers end, and free their ports."""
    with pipeline(tmp_path) as stack:
        processes = list(descendants(stack.process.pid))
        assert stack.stop(signal.SIGKILL) == -signal.SIGKILL
        wait_until_ended(processes)
    shutil.rmtree(stack.home)  # the next run of that home would do it


def test_a_stage_that_cannot_start_ends_the_pipeline_with_its_status(tmp_path: Path) -> None:
    """The stage is named, its own words are in the log, and the others are stopped."""
    good, bad = archives(tmp_path)
    pack(Path(bad), {"code/inference.py": "def model_fn(model_dir): raise OSError('no weights')"})
    stack = Stack(good, bad, "--env", "1:STAGE=1", env=without_nginx())
    try:
        assert stack.wait() == 3
    finally:
        stack.close()

    assert "no weights" in stack.log
    assert "stage 2 (part-2.tar.gz) ended with exit status 3" in stack.log


def test_each_stage_that_has_a_folder_captures(tmp_path: Path) -> None:
    """A pipeline as a whole captures nothing, and says so."""
    with pipeline(tmp_path, "--env", f"2:TFS_PROXY_CAPTURE={tmp_path / 'capture'}") as stack:
        answer = tell(stack, {"number": 7}, X_Amzn_SageMaker_Inference_Id="id-7")
        stack.stop()
    (record,) = captured(tmp_path / "capture")
    assert body_of(record, "endpointOutput") == answer.body
    assert record["eventMetadata"]["inferenceId"] == "id-7"

    stack = Stack(*archives(tmp_path), env={"TFS_PROXY_CAPTURE": str(tmp_path)})
    with contextlib.closing(stack):
        assert stack.wait() == 2
        assert "TFS_PROXY_CAPTURE can't be used for a pipeline as a whole" in stack.log
