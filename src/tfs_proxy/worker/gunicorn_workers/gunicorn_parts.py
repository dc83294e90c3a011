"""Undocumented parts of gunicorn in use, at most ten names; a test holds the list."""

from gunicorn.arbiter import Arbiter
from gunicorn.http.parser import RequestParser
from gunicorn.http.wsgi import Response, create

__all__ = (
    "Arbiter",
    "RequestParser",
    "Response",
    "create",
)
