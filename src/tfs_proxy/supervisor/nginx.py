"""Configuration, argv and environment of nginx: pure. nginx routes and buffers, Python decides."""

import os
import pwd
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from tfs_proxy.layout import Workspace
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor import fast_path
from tfs_proxy.supervisor.fast_path import FastPath

REFUSALS: Mapping[int, str] = {
    400: "bad request: it is not HTTP as RFC 9112 has it",
    403: "forbidden",
    404: "there is nothing at this path",
    405: "this method is not allowed here",
    408: "the request did not arrive in time",
    411: "a Content-Length is needed",
    413: "the body is larger than $limit MB, the limit that SAGEMAKER_MAX_PAYLOAD_IN_MB sets",
    414: "the URI is too long",
    416: "the range can't be satisfied",
    421: "misdirected request",
    429: "too many requests",
    431: "the request's headers are too large",
    500: "internal error of the HTTP front",
    501: "this transfer coding is not implemented",
    502: "the worker ended before it answered",
    503: "not available",
    504: "no answer in time",
    505: "this version of HTTP is not supported",
}
"""What nginx refuses by itself, as the text under ``error``."""

REPLACED: Mapping[int, int] = {494: 431, 495: 400, 496: 400, 497: 400}
"""nginx's own status numbers, and what clients get instead."""


@dataclass(frozen=True, slots=True)
class Front:
    """Where nginx listens, and where it sends requests to; ``fast`` is None with a script."""

    listen: str
    web: str
    door: Path
    fast: FastPath | None = None


def find() -> str | None:
    """The nginx program, also where a user's PATH has no sbin."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


def config(front: Front, settings: Settings, workspace: Workspace) -> str:
    """The whole nginx.conf."""
    template = Template(files(__package__).joinpath("nginx.conf.template").read_text())
    read_seconds = max(settings.nginx_proxy_read_timeout_seconds, settings.gunicorn_timeout_seconds)
    return template.substitute(
        user=_user_line(),
        home=workspace.nginx,
        listen=front.listen,
        web_servers="\n        ".join(_web_servers(front)),
        resend="error non_idempotent" if front.fast else "off",
        door=front.door,
        log_level=settings.nginx_loglevel,
        max_payload_mb=settings.max_payload_mb or 100,
        read_seconds=read_seconds,
        stop_seconds=max(int(settings.stop_seconds), 1),
        refusals=_refusals(settings),
        fast_maps=fast_path.maps(front.fast) if front.fast else "",
        fast_locations=fast_path.locations(_timeout_message(settings)) if front.fast else "",
        # NOTE: an error_page of a location's own hides those of the server block, so they are repeated.
        entrance="\n            ".join((fast_path.ENTRANCE, *_error_pages())) if front.fast else "",
    )


def _web_servers(front: Front) -> tuple[str, ...]:
    """The workers' address; twice where a request may go to a second worker when the first was killed.

    Without a script a request changes nothing, and is safe to be sent again; a script's may.
    """
    return (f"server {front.web} max_fails=0;",) * (2 if front.fast else 1)


def _timeout_message(settings: Settings) -> str:
    """The sentence that workers answer where a model server takes too long."""
    return f"The model server did not answer within {settings.request_timeout_seconds:g} seconds."


def _user_line() -> str:
    """As root nginx would change to a user who can't open the workspace."""
    if os.geteuid() != 0:
        return ""
    return f"user {pwd.getpwuid(0).pw_name};"


def _refusals(settings: Settings) -> str:
    """``error_page`` lines and the internal locations they lead to.

    A named location would answer a malformed URI in HTML; an internal location does not.
    """
    lines = _error_pages()
    for status, text in REFUSALS.items():
        said = text.replace("$limit", str(settings.max_payload_mb or 100)).replace("'", "\\'")
        lines.append(
            f'location = /.refused/{status} {{ internal; return {status} \'{{"error": "{said}"}}\'; }}'
        )
    return "\n        ".join(lines)


def _error_pages() -> list[str]:
    lines = [f"error_page {status} /.refused/{status};" for status in REFUSALS]
    return lines + [f"error_page {own} ={status} /.refused/{status};" for own, status in REPLACED.items()]


def argv(nginx: str, workspace: Workspace) -> tuple[str, ...]:
    """The whole command."""
    return (nginx, "-p", str(workspace.nginx), "-c", str(workspace.nginx / "nginx.conf"), "-e", "stderr")


def environment(base: Mapping[str, str], listener_fd: int) -> dict[str, str]:
    """``base`` with the variable by which nginx inherits a listening socket (its own upgrade protocol)."""
    return {**base, "NGINX": f"{listener_fd};"}
