"""Undocumented parts of gunicorn in use: at most ten names, in one module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tfs_proxy
from tfs_proxy.worker.gunicorn_workers import gunicorn_parts

MOST = 10
DOCUMENTED = {
    "gunicorn.SERVER_SOFTWARE",
    "gunicorn.app.wsgiapp.WSGIApplication",
    "gunicorn.errors.HaltServer",
    "gunicorn.glogging.Logger",
    "gunicorn.workers.base.Worker",
    "gunicorn.workers.ggevent.GeventWorker",
    "gunicorn.workers.gthread.ThreadWorker",
    "gunicorn.workers.sync.SyncWorker",
}


def imported(module: Path) -> Iterator[str]:
    """The names that a module imports from gunicorn."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gunicorn":
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "gunicorn")


def test_private_names_of_gunicorn_are_few_and_in_one_place() -> None:
    """All other imported names are documented by gunicorn."""
    parts = Path(str(gunicorn_parts.__file__))
    modules = Path(str(tfs_proxy.__file__)).parent.rglob("*.py")
    elsewhere = {name for module in modules if module != parts for name in imported(module)}

    assert elsewhere == DOCUMENTED
    assert {name.rpartition(".")[2] for name in imported(parts)} <= set(gunicorn_parts.PRIVATE_NAMES)
    assert len(gunicorn_parts.PRIVATE_NAMES) <= MOST
