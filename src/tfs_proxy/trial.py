"""``tfs-proxy check``: the start-up report, and one request through the script with a fake model server."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfs_proxy.errors import ArchiveError, ScriptLoadError
from tfs_proxy.layout import ModelLayout, Workspace
from tfs_proxy.served import Served
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.prepare import prepare
from tfs_proxy.upstream.fake_server import ModelCall

FAILED = ScriptLoadError.exit_status
ERRORS_FROM = 400
SHOWN_CHARACTERS = 2000
STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Sample:
    """A request to try: the file with its body (``-`` is stdin), and its headers, None for those it lacks."""

    file: Path
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None

    def read(self) -> bytes:
        """The body; raises ArchiveError where the file can't be read."""
        if self.file == STDIN:
            return sys.stdin.buffer.read()
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise ArchiveError(f"The request {self.file} can't be read: {error.strerror}.") from error


def check(
    model: str | None,
    sample: Sample | None,
    settings: Settings,
    environ: Mapping[str, str],
    show: Callable[[str], None] = print,
) -> int:
    """Show the report on ``model`` and the answer to ``sample``; returns the exit status.

    Raises what start-up raises: ArchiveError, DiscoveryError, SettingsError, ScriptLoadError.
    """
    body = sample.read() if sample else b""
    with tempfile.TemporaryDirectory(prefix="tfs-proxy-check-", dir=settings.home) as folder:
        prepared = prepare(model or settings.model, settings, Workspace(Path(folder)), environ)
        for line in prepared.report:
            show(line)
        return _try(sample, body, prepared.served, settings, show) if sample else 0


def _try(sample: Sample, body: bytes, served: Served, settings: Settings, show: Callable[[str], None]) -> int:
    from tfs_proxy import testing

    layout = served.layout
    with _explained(layout), testing.load(layout.root, settings=settings) as script:
        began = time.perf_counter()
        reply = script.post(body, sample.content_type, sample.accept, sample.custom_attributes)
        milliseconds = (time.perf_counter() - began) * 1000
        asked = "; ".join(_asked(script.calls))
    show(f"Request: {sample.file}, {sample.content_type or 'no Content-Type'}, {len(body)} bytes")
    if served.models:
        show(f"Model server (a fake one, which answers zeros): {asked or 'not asked'}")
    broken = ", broken off by an error" if reply.broken else ""
    show(
        f"Answer: {reply.status} {reply.content_type}, {len(reply.body)} bytes, {milliseconds:.1f} ms{broken}"
    )
    show(_shown(reply.body))
    return FAILED if reply.broken or reply.status >= ERRORS_FROM else 0


@contextmanager
def _explained(layout: ModelLayout) -> Iterator[None]:
    """Say of a script that can't be imported what the reason may be."""
    try:
        yield
    except ScriptLoadError as error:
        if layout.requirements.is_file():
            raise ScriptLoadError(
                f"{error} Only serve installs {layout.requirements.name}: check uses this environment."
            ) from error
        raise


def _asked(calls: Sequence[ModelCall]) -> Iterator[str]:
    for call in calls:
        tensors = (f"{name} {array.dtype}{list(array.shape)}" for name, array in call.inputs.items())
        yield f"{call.target.model} {call.target.method}: {', '.join(tensors) or 'features'}"


def _shown(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "(no text)"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
