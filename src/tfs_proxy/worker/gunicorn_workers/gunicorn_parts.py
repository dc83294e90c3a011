"""Undocumented parts of gunicorn in use, at most ten names; a test holds the list."""

from typing import Final

from gunicorn.arbiter import Arbiter
from gunicorn.http.parser import RequestParser
from gunicorn.http.wsgi import Response, create

PRIVATE_NAMES: Final = (
    "Arbiter",
    "Arbiter.WORKERS",
    "Arbiter.manage_workers",
    "Arbiter.num_workers",
    "Arbiter.systemd",
    "RequestParser",
    "Response",
    "ThreadWorker.set_accept_enabled",
    "Worker.handle_error",
    "create",
)
"""Names of these parts; documented are settings, hooks, worker classes, and their base `Worker`."""

__all__ = ("PRIVATE_NAMES", "Arbiter", "RequestParser", "Response", "create")
