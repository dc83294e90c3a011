"""Runs ``python -m tfs_proxy.tools.export`` for one request of `packing`.

A process of its own, since TensorFlow takes seconds and gigabytes, and a hostile file may crash it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from msgspec import DecodeError, Struct, field, json

from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.tools.export.preprocessing import Preprocessing
from tfs_proxy.values.errors import ExportError, SettingsError
from tfs_proxy.values.installation import how_to_install
from tfs_proxy.values.names import printable


class ExportRequest(Struct, frozen=True):
    """A request to write a SavedModel."""

    source: Path
    """A .keras or .h5 file, or a SavedModel folder that gets signatures."""

    target: Path
    """Folder to write, which must not exist yet."""

    allow_code: bool = False
    """True if a Keras file may run the code in it."""

    preprocessing: Preprocessing | None = None
    """Signatures to add; None for none."""


class ExportReport(Struct, frozen=True):
    """The export process's report."""

    exporter: str = ""
    """Library that read the file, with its version."""

    warnings: tuple[str, ...] = ()
    """Sentences for the person who exports."""

    refusal: str | None = None
    """Sentence that says why nothing was written; None if it was."""

    inputs: tuple[str, ...] = ()
    """Names of a Keras model's inputs in the graph, in the order of its list or dict."""

    own_names: Mapping[str, str] = field(default_factory=dict)
    """Those names by the author's own, where they differ."""


MODULE = "tfs_proxy.tools.export"
MOST_SECONDS = 3600
POLL_SECONDS = 0.1
TAIL_LINES = 5
ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONHASHSEED": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""Variables that the process gets on top of this one's; it needs no GPU to write SavedModels."""


def export(request: ExportRequest, cancelled: threading.Event | None = None) -> ExportReport:
    """Runs the request in a process of its own; then ``request.target`` is a SavedModel.

    All that it writes is in the folder of ``target``. It ends with this process.
    Raises SettingsError if tensorflow is not installed, ExportError if the file is refused or can't be
    exported, CancelledError once another thread has set ``cancelled``; then there is no ``target``.
    """
    if find_spec("tensorflow") is None:
        raise SettingsError(
            f"{_shown(request)} can't be exported: TensorFlow is not installed here. Install it "
            f"with {how_to_install('embedded')}, or pack the model where it is installed."
        )
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=request.target.parent) as folder:
            return _run(request, Path(folder), cancelled or threading.Event())
    except BaseException:
        shutil.rmtree(request.target, ignore_errors=True)
        raise


def _run(request: ExportRequest, folder: Path, cancelled: threading.Event) -> ExportReport:
    """Starts the process and waits for its report. Raises ExportError if it ends without one, or refuses."""
    answer = folder / "report.json"
    errors = folder / "stderr"
    # -P: a module in the user's working directory must not shadow a library's.
    argv = [sys.executable, "-P", "-m", MODULE, str(answer), str(os.getpid())]
    with errors.open("wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # TensorFlow leaves generated code in the temporary folder.
            env={**inherited_environment(), **ENVIRONMENT, "TMPDIR": str(folder)},
        )
        try:
            _wait(process, request, cancelled)
        finally:
            process.kill()
            process.wait()
    try:
        report = json.decode(answer.read_bytes(), type=ExportReport)
    except (OSError, DecodeError):
        raise ExportError(_ended(request, process.returncode, errors)) from None
    if report.refusal is not None:
        raise ExportError(printable(report.refusal))
    return report


def _wait(process: subprocess.Popen[bytes], request: ExportRequest, cancelled: threading.Event) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.encode(request, enc_hook=str))
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return
        if cancelled.is_set():
            raise CancelledError
    raise ExportError(
        f"{_shown(request)} was not exported within {MOST_SECONDS} seconds: export it yourself with "
        "model.export(FOLDER), and pack the folder."
    )


def _ended(request: ExportRequest, status: int, errors: Path) -> str:
    how = f"the process that reads it ended with status {status}"
    if status < 0:
        how = f"the process that reads it was ended by {signal.Signals(-status).name}"
    if status in {-signal.SIGKILL, -signal.SIGABRT, -signal.SIGBUS}:
        how += "; it may need more memory than there is, or more than a file of this size should"
    lines = errors.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    tail = "\n".join(["", *map(printable, lines)]) if lines else ""
    return f"{_shown(request)} can't be exported: {how}.{tail}"


def _shown(request: ExportRequest) -> str:
    return printable(str(request.source))
