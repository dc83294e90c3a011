"""Tables of paths and methods with their handlers."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.wire.error_body import not_allowed
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

GET: Final = ("GET", "HEAD")
NOT_ALLOWED: Final = 405

Handler = Callable[..., Awaitable[HttpResponse]]
"""Function that answers a request; gets the named groups of its path as keywords. May raise TfsProxyError."""


@dataclass(frozen=True)
class Route:
    """Path as a regular expression, its methods, and its handler."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    inner: bool = False
    """True for workers and commands only: clients get 404."""
    early: bool = False
    """True if it is answered on the workers' socket until they take over."""


class Routes:
    """Table of routes; the first match counts."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = [(re.compile(route.path), route) for route in routes]

    async def answer(self, request: HttpRequest) -> HttpResponse | None:
        """Answer a request, with 405 for a method that its path does not have; None for other paths."""
        found = [
            (route, match)
            for pattern, route in self._routes
            if (match := pattern.fullmatch(request.path)) is not None
        ]
        for route, match in found:
            if request.method in route.methods:
                names = {name: unquote(text) for name, text in match.groupdict(default="").items()}
                return await _handled(route.handler, request, names)
        methods = [method for route, _ in found for method in route.methods]
        return refused_method(request.method, methods) if found else None


async def _handled(handler: Handler, request: HttpRequest, names: dict[str, str]) -> HttpResponse:
    try:
        return await handler(request, **names)
    except TfsProxyError as error:
        return HttpResponse.error(status_of_error(error), str(error))


def refused_method(method: str, methods: Sequence[str]) -> HttpResponse:
    allowed = ", ".join(methods)
    return HttpResponse.error(NOT_ALLOWED, not_allowed(method, allowed), headers={"Allow": allowed})
