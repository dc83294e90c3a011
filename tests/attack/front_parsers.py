"""Parsers of HTTP, of messages between processes and of the pipeline's command, for `attack.parsers`."""

import argparse
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from falcon import Request
from falcon.testing import create_environ
from gunicorn.config import Config
from gunicorn.http.errors import NoMoreData, ParseException
from gunicorn.http.message import Request as GunicornRequest
from gunicorn.http.parser import RequestParser
from msgspec.json import decode

from attack.fronts import BODY
from tfs_proxy.commands.serve import stages_of
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.pipeline.stage import planned
from tfs_proxy.values.deployment import BodyLimits, WorkerState
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.worker.body import BodyReader
from tfs_proxy.worker.gunicorn_workers.plain_http import plain_request
from tfs_proxy.worker.gunicorn_workers.refusals import (
    OUR_FAULT,
    RepeatedHeader,
    UnsupportedTransferCoding,
    refusal,
    refuse_misread,
)
from tfs_proxy.worker.memory_ledger import MemoryLedger

HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED_HEADS = (ParseException, NoMoreData, StopIteration, RepeatedHeader, UnsupportedTransferCoding)

HEADS = (
    b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    HEAD + b"0\r\n\r\n",
)
CHUNKS = (b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY), b"1;a=b\r\nx\r\n0\r\nX-A: b\r\n\r\n")
STATES = (b'{"pid": 1, "phase": "serves", "hangs": true, "line": "inference.py:3", "stuck": 2, "limit": 3}',)
SLOTS = (bytes(16), b"\x01" + bytes(7) + b"\x00\x10" + bytes(6), b"\xff" * 32)
PIPELINES = (
    b"a.tar.gz\nb.tar.gz\n\n1:SAGEMAKER_GUNICORN_WORKERS=2\n2:A=b",
    b"a\nb\nc\n\n3:TFS_PROXY_STOP_SECONDS=no",
)


def plain_head(data: bytes) -> None:
    """The reader of ordinary requests; what it takes, gunicorn reads in the same way."""
    request = plain_request(data, _unconnected())
    if request is None:
        return
    try:
        other = _gunicorn_request(data)
    except REFUSED_HEADS as error:
        raise AssertionError(f"gunicorn refuses it: {error!r}") from error
    if (request.method, request.path, list(request.headers.items())) != (
        other.method,
        other.path,
        other.headers,
    ):
        raise AssertionError(f"read as {request.method} {request.path} {request.headers}")


@cache
def _unconnected() -> socket.socket:
    return socket.socket()


def _gunicorn_request(data: bytes) -> GunicornRequest:
    config = Config()
    config.set("http_parser", "python")
    return next(RequestParser(config, iter([data]), ("127.0.0.1", 1)))


def gunicorn_head(data: bytes) -> None:
    """gunicorn's parser and our additions to it; a refusal has an answer of its own."""
    try:
        refuse_misread(_gunicorn_request(data).headers)
    except (ParseException, RepeatedHeader, UnsupportedTransferCoding) as error:
        if refusal(error) is OUR_FAULT:
            raise AssertionError(f"answered with 500: {error!r}") from error
        raise


def chunks(data: bytes) -> None:
    deployment = SimpleNamespace(bodies=BodyLimits(MEGABYTE, MEGABYTE))
    reader = BodyReader(deployment)  # type: ignore[arg-type]  # all that it asks of a Deployment
    environ = create_environ(method="POST", headers={"Transfer-Encoding": "chunked"})
    environ["wsgi.input"] = _gunicorn_request(HEAD + data).body
    request = Request(environ)
    with reader.budget() as budget:
        reader.read(request, budget)


def worker_state(data: bytes) -> None:
    heartbeats = Heartbeats()
    with suppress(ValueError, RecursionError):
        heartbeats.hear(decode(data, type=WorkerState))
    heartbeats.reason()
    heartbeats.take_overdue()


def ledger(folder: Path, data: bytes) -> None:
    """The shared table of reserved memory, whatever stands in it."""
    path = folder / "ledger"
    path.write_bytes(data)
    memory = MemoryLedger(path, MEGABYTE, wait_seconds=0)
    memory.reserve(1)
    memory.release(1)


def pipeline(data: bytes) -> None:
    """The command's arguments: stages, an empty line, variables; and what its stages get."""
    stages, _, variables = data.decode("latin-1").partition("\n\n")
    arguments = argparse.Namespace(models=stages.split("\n"), env=variables.split("\n"), reload=False)
    with ExitStack() as held, ThreadPoolExecutor(1) as threads:
        planned(stages_of(arguments), {}, threads, held)
