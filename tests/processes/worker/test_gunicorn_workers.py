"""Our worker classes under a real gunicorn: heartbeats, scripts, and how they end."""

import json
import time
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from support.gunicorn_workers import Workers, error_text, workers

CLASSES = ("gthread", "gthread without nginx", "sync", "gevent")
SCRIPT = """
import os, sys, time
import requests

def handler(data, context):
    body = data.read().decode()
    if body == "exit":
        sys.exit(5)
    if body == "sleep":
        time.sleep(30)
    if body == "post":
        answer = requests.post(context.rest_uri, data='{"instances": [1.0]}', timeout=context.timeout)
        return answer.content, context.accept_header
    if body == "channel":
        return context.channel.unary_unary("/test/Echo")(b"over gRPC"), "text/plain"
    return str(os.getpid()), "text/plain"
"""


@pytest.fixture(scope="module", params=CLASSES)
def running(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """One worker of each class, with a script."""
    name, _, without = request.param.partition(" ")
    with workers(name, SCRIPT, behind_nginx=not without) as started:
        started.wait_for_heartbeats()
        yield started


def test_heartbeats(running: Workers) -> None:
    """The worker that answers is the one that says that it serves, at most once a second."""
    _, _, pid = running.post(b"pid")

    running.wait_for_heartbeats(len(running.heartbeats) + 2)

    beats = tuple(running.heartbeats)
    assert set(beats) == {int(pid)}
    assert len(beats) - 1 <= time.monotonic() - running.began


def test_scripts_own_request(running: Workers) -> None:
    """A handler that asks the model server itself, with requests, just works."""
    status, headers, body = running.post(b"post", "Accept: application/json")

    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"predictions": [2.5]}


def test_scripts_channel(running: Workers) -> None:
    """A handler's gRPC channel leads to the model server's socket, under gevent too."""

    class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _details: object) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(lambda message, _context: message)

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(Echo(),))
    server.add_insecure_port(f"unix:{running.grpc_socket}")
    server.start()
    try:
        answers = [running.post(b"channel") for _ in range(3)]
    finally:
        server.stop(0).wait()

    assert [(status, body) for status, _, body in answers] == [(200, b"over gRPC")] * 3


def test_script_that_exits(running: Workers) -> None:
    """sys.exit in a script fails its request, not the worker."""
    _, _, before = running.post(b"pid")

    status, _, body = running.post(b"exit")

    assert (status, json.loads(body)) == (500, {"error": "SystemExit: 5"})
    assert running.post(b"pid")[2] == before
    running.wait_for_log("inference.py:8 in handler: SystemExit: 5")


def test_worker_that_runs_out_of_time() -> None:
    """A sync worker that gunicorn ends in the middle of a request says so, and another one follows."""
    with workers("sync", SCRIPT, {"SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "3"}) as started:
        started.wait_for_heartbeats()
        _, _, before = started.post(b"pid")

        raw = started.raw(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nsleep")

        assert "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS" in error_text(raw, 504)
        status, _, after = started.post(b"pid")
        assert status == 200
        assert before != after
