"""The guard of a run's addresses, and the HTTP servers of our own processes behind it."""

import re
from http import HTTPStatus
from ipaddress import ip_address

from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.names import printable
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.guard import PASSES, REFUSALS, Guard
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.http_server import AsgiApp, Message, Receive, Send, app_of, head_of

ORIGIN = r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+"
HOST_NAME = r"[A-Za-z0-9._-]+|\[[0-9a-f:.]+\]"


def guard_of(settings: Settings) -> Guard:
    """The guard of the addresses that ``settings`` have once they are listened to. Raises SettingsError."""
    hosts = words_of(settings.hosts)
    is_local = bool(hosts) and all(ip_address(host).is_loopback for host in hosts)
    origins = words_of(settings.allowed_origins)
    names = words_of(settings.allowed_hosts)
    for variable, words, pattern, phrase in (
        ("TFS_PROXY_ALLOWED_ORIGINS", origins, ORIGIN, "an origin such as https://app.example"),
        ("TFS_PROXY_ALLOWED_HOSTS", names, HOST_NAME, "a host's name without a port"),
    ):
        for word in words:
            if not re.fullmatch(pattern, word):
                raise SettingsError(f"{variable}: {printable(word)} can't be used: it must be {phrase}.")
    return Guard(origins, names, is_local)


def words_of(text: str) -> tuple[str, ...]:
    """Words of a setting, between commas."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def guarded(app: AsgiApp, guard: Guard) -> AsgiApp:
    """Make an ASGI application that refuses what ``guard`` does, and leaves the rest to ``app``."""

    async def guarding(scope: Message, receive: Receive, send: Send) -> None:
        headers = head_of(scope).headers
        verdict = guard.verdict(scope["method"], scope["path"], headers.get)
        more = guard.answer_headers(verdict, headers.get)

        async def send_with_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                coded = [(name.encode(), value.encode("latin-1")) for name, value in more.items()]
                message = {**message, "headers": [*message["headers"], *coded]}
            await send(message)

        async def refuse(_: HttpRequest) -> HttpResponse:
            if verdict not in REFUSALS:
                return HttpResponse(HTTPStatus.NO_CONTENT)
            # "Message" is for AWS's clients.
            text = REFUSALS[verdict]
            return HttpResponse(HTTPStatus.FORBIDDEN, error_body(text, Message=text))

        answering = app if verdict == PASSES else app_of(refuse)
        await answering(scope, receive, send_with_more)

    return guarding
