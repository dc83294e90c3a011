"""Files of the console page: ``GET /`` and paths below ``/console/``, for workers and the control API."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from msgspec import Struct

from tfs_proxy import __version__
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.http_messages import ALIVE
from tfs_proxy.wire.media_types import JSON, best

FACTS = "facts.json"
"""Name, below `CONSOLE`, of the file with the page's facts about the models."""

HTML = "text/html"
PAGE = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Headers of all files of the page."""

TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(Struct, frozen=True):
    """File of the page, and its headers."""

    body: bytes
    content_type: str
    headers: Mapping[str, str]


def at_root(accept: str | None, *, has_console: bool) -> StaticFile:
    """Answer browsers with the page; all others, and if the page is off, with ``{"status": "alive"}``."""
    page = page_file(PAGE) if has_console and (best(accept, (JSON, HTML)) == HTML) else None
    vary = {"Vary": "Accept"} if has_console else {}
    if page is None:
        return StaticFile(ALIVE, JSON, vary)
    return StaticFile(page.body, page.content_type, {**page.headers, **vary})


@cache
def _bodies() -> Mapping[str, bytes]:
    folder = files(__package__) / "console_page"
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}


def file_names() -> list[str]:
    """Names of the files below `CONSOLE`, in order; the page itself is at the root."""
    return sorted(name for name in _bodies() if name != PAGE and page_file(name))


def page_file(name: str) -> StaticFile | None:
    """File of the page by its name; None if there is no such file."""
    body = _bodies().get(name)
    content_type = TYPES.get(name.rpartition(".")[2])
    return None if body is None or content_type is None else StaticFile(body, content_type, HEADERS)


def facts(**values: object) -> bytes:
    """Write the page's facts as JSON; ``values`` are those that differ between ways to serve."""
    return json.dumps({"server": f"tfs_proxy {__version__}", **values}).encode()


def shown_signature(signature: Signature) -> Mapping[str, object]:
    """Form of a signature for the page: tensors with dtype and shape, -1 for a free size."""
    return {
        "method": signature.method,
        "inputs": {name: _shown(spec) for name, spec in signature.inputs.items()},
        "outputs": {name: _shown(spec) for name, spec in signature.outputs.items()},
    }


def _shown(spec: TensorSpec) -> Mapping[str, object]:
    if spec.shape is None:
        return {"dtype": spec.dtype, "shape": None}
    return {"dtype": spec.dtype, "shape": [-1 if size is None else size for size in spec.shape]}
