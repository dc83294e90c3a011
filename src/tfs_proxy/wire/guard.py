"""The guard against web pages of other sites (docs/how-to/secure.md): one rule for nginx and Python."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from msgspec import Struct

from tfs_proxy.wire.routes import TABLE, Caller

ORIGIN = "origin"
HOST = "host"
PREFLIGHT = "preflight"
PASSES = ""
"""Verdicts: the page or the Host is refused, a preflight of an allowed page is answered, all else passes."""

REFUSALS: Final = {
    ORIGIN: "forbidden: a web page of another origin sent this, not one of TFS_PROXY_ALLOWED_ORIGINS",
    HOST: "forbidden: the Host is no name of this machine, and not one of TFS_PROXY_ALLOWED_HOSTS",
}
METHODS: Final = "GET, HEAD, POST, DELETE, OPTIONS"
HEADERS: Final = ("sec-fetch-site", "origin", "host", "x-forwarded-host")
_VARIABLES = ("$http_" + name.replace("-", "_") for name in HEADERS)
NGINX_KEY: Final = r"\n".join(("$request_method", "$allowed_origin", *_VARIABLES, ""))
"""A request as the patterns see it: no header can have a line end in it."""

SPARED: Final = frozenset(route.path for route in TABLE if route.caller is Caller.ANYONE)
MANAGEMENT: Final = "|".join(route.regex("[^/]+") for route in TABLE if route.caller is Caller.ADMIN)
"""Pattern of an admin's paths, which load and unload models; at them the guard holds at any address."""

_OWN_NAMES = r"(?:[a-z0-9_-]+\.)*localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]|host\.docker\.internal"
_LINE = r"[^\n]*\n"
_DEFAULT_PORT = "(?::(?:80|443))?"

Header = Callable[[str], str | None]  # by its name in lower case


class Guard(Struct, frozen=True):
    """The guard of one listener: pages of ``origins`` may call it, ``hosts`` are further names for it.

    It holds at all doors if ``is_local``, if it ``is_endpoint``, or once there are ``origins``; else at the
    paths of `MANAGEMENT`.
    """

    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    is_local: bool = False
    is_endpoint: bool = False

    @property
    def is_everywhere(self) -> bool:
        return self.is_local or self.is_endpoint or bool(self.origins)

    def rules(self) -> Iterator[tuple[str, str]]:
        """Patterns of `NGINX_KEY` with their verdicts: the first match counts, the last matches all."""
        names = "|".join((_OWN_NAMES, *map(re.escape, self.hosts)))
        of = "*" if self.is_local else "+"
        if self.is_local or self.is_endpoint:  # for an endpoint that others reach, of pages alone
            yield rf"^(?:{_LINE}){{3}}[^\n]{of}\n(?!(?:(?i:{names})(?::[0-9]*)?)?\n)", HOST
        yield r"^OPTIONS\n[^\n]", PREFLIGHT
        yield rf"^(?:GET|HEAD)\n|^{_LINE}[^\n]|^(?:{_LINE}){{2}}(?:same-origin|none)\n", PASSES
        yield rf"^(?:{_LINE}){{2}}[^\n]", ORIGIN
        page = rf"[a-z][a-z0-9+.-]*://([a-z0-9._:\[\]-]+?){_DEFAULT_PORT}\n"
        same = rf"(?:{_LINE})?\1{_DEFAULT_PORT}(?:,[^\n]*)?\n"
        yield rf"^(?:{_LINE}){{3}}(?:\n|(?i:{page}{same}))", PASSES
        yield "^", ORIGIN

    def verdict(self, method: str, path: str, header: Header) -> str:
        """`PASSES`, `PREFLIGHT`, or the key of one of the `REFUSALS`."""
        if path in SPARED or not (self.is_everywhere or re.fullmatch(MANAGEMENT, path)):
            return PASSES
        lines = (method, self._allowed(header), *(header(name) or "" for name in HEADERS), "")
        return _verdict(self, "\n".join(lines))

    def _allowed(self, header: Header) -> str:
        return origin if self.origins and (origin := header("origin") or "") in self.origins else ""

    def answer_headers(self, verdict: str, header: Header) -> dict[str, str]:
        """Headers by which a browser shows a listed page the answer; none without a list."""
        headers = {"Vary": "Origin"} if self.origins else {}
        if allowed := self._allowed(header):
            headers |= {"Access-Control-Allow-Origin": allowed, "Access-Control-Expose-Headers": "*"}
        if verdict == PREFLIGHT:
            headers["Access-Control-Allow-Headers"] = header("access-control-request-headers") or ""
            headers["Access-Control-Allow-Methods"] = METHODS
        return headers


@lru_cache(maxsize=64)
def _verdict(guard: Guard, request: str) -> str:
    return next(verdict for pattern, verdict in guard.rules() if re.search(pattern, request))
