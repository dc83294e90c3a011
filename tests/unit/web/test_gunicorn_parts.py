"""What is used of gunicorn beyond its documented interface: the reason why one minor version is pinned."""

import dis
import inspect
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import CodeType

import pytest
from gunicorn import util
from gunicorn.arbiter import Arbiter
from gunicorn.http import wsgi
from gunicorn.http.unreader import Unreader
from gunicorn.workers import gthread
from gunicorn.workers.base import Worker
from gunicorn.workers.sync import SyncWorker
from gunicorn.workers.workertmp import WorkerTmp

USED = {
    util: ("write_nonblock", "close_graceful"),
    wsgi: ("create", "Response"),
    wsgi.Response: ("start_response", "write", "close", "should_close", "default_headers", "force_close"),
    gthread: ("STOP_KEEPALIVE_LINGER", "TConn", "ThreadWorker"),
    gthread.TConn: ("init", "set_timeout", "close"),
    gthread.ThreadWorker: ("handle", "is_parent_alive", "wait_for_and_dispatch_events", "init_process"),
    Unreader: ("unread",),
    Worker: ("load_wsgi", "run", "notify", "handle_error", "handle_abort", "handle_quit", "handle_exit"),
    SyncWorker: ("wait",),
    Arbiter: ("WORKERS", "manage_workers", "kill_worker", "run", "stop"),
    WorkerTmp: ("fileno", "notify"),
}
"""By module or class of gunicorn: the names that the worker classes call, override or replace."""

ATTRIBUTES = {
    gthread.TConn.__init__: ("sock", "timeout", "initialized", "parser", "data_ready"),
    gthread.ThreadWorker.__init__: ("worker_connections", "poller", "method_queue"),
    wsgi.Response.__init__: ("headers_sent", "headers", "response_length", "sent", "chunked", "sock"),
    Arbiter.__init__: ("systemd",),
    Worker.__init__: ("alive", "tmp", "sockets", "ppid", "nr", "max_requests", "cfg", "log"),
}
"""By constructor: the attributes that are read or set."""


def assigned(code: CodeType) -> set[str]:
    """The attributes that a function sets."""
    return {str(line.argval) for line in dis.get_instructions(code) if line.opname == "STORE_ATTR"}


@pytest.mark.parametrize("owner", USED, ids=lambda owner: owner.__name__)
def test_gunicorn_has_the_names_that_the_workers_use(owner: object) -> None:
    """A new version that lacks one fails here, and not in a container."""
    assert [name for name in USED[owner] if not hasattr(owner, name)] == []


@pytest.mark.parametrize("constructor", ATTRIBUTES, ids=lambda constructor: constructor.__qualname__)
def test_gunicorn_sets_the_attributes_that_the_workers_use(constructor: Callable[..., None]) -> None:
    """They are read from the constructor's own code."""
    wanted = set(ATTRIBUTES[constructor])

    assert wanted - assigned(inspect.unwrap(constructor).__code__) == set()


def test_one_minor_version_of_gunicorn_is_pinned() -> None:
    """Private parts may change in any minor version: the requirement allows that of the tests alone."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (requirement,) = [line for line in project["dependencies"] if line.startswith("gunicorn")]
    major, minor, *_ = map(int, metadata.version("gunicorn").split("."))

    assert requirement == f"gunicorn>={major}.{minor},<{major}.{minor + 1}"
