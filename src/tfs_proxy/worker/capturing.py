"""Data capture: a share of the requests to /invocations and their answers, in files of each worker's own."""

import errno
import logging
import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

from tfs_proxy.data.capture import ENDING, CapturedRequest, line_of
from tfs_proxy.observe.request_record import RequestRecord
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_ID, SERVED_NAME, wsgi_name
from tfs_proxy.wire.routes import INVOCATIONS
from tfs_proxy.worker.body import BODY

log = logging.getLogger(__name__)

MEMORY_BYTES = 32 * MEGABYTE
PIECE_BYTES = 1024
"""Memory for captured bodies in a worker, and that of a body or piece of an answer besides its bytes."""

FILE_BYTES = 16 * MEGABYTE
FILE_SECONDS = 600.0
FOLDER_BYTES = 1024 * MEGABYTE
"""Size and age from which on another file is begun, and the size of all files."""

FLUSH_SECONDS = 5.0
WARNING_SECONDS = 60.0
_NAME, _ATTRIBUTES, _INFERENCE_ID = map(wsgi_name, (SERVED_NAME, CUSTOM_ATTRIBUTES, INFERENCE_ID))


class Capture:
    """Observer of requests that writes calls it chooses into files; ``written`` and ``dropped`` count them.

    Its queue has the model of a call, "" if there is only one, its line, and the memory taken for it.
    """

    def __init__(self, options: CaptureOptions) -> None:
        self.written = self.dropped = 0
        self._options = options
        self._folder = Path(options.folder)
        self._files: dict[str, tuple[Path, float, int]] = {}
        self._queue: SimpleQueue[tuple[str, bytes, int] | None] = SimpleQueue()
        self._free_bytes = MEMORY_BYTES
        self._lock = threading.Lock()
        self._warned_at = -WARNING_SECONDS
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def begin(self, _record: RequestRecord, environ: dict[str, Any]) -> "Copy | None":
        """Begin the copy of a call; None for one that is not chosen."""
        share = self._options.percent / 100
        if environ["PATH_INFO"] != INVOCATIONS.path or random.random() >= share:  # noqa: S311
            return None
        environ[BODY] = None
        return Copy(self, environ, environ.get(_NAME, "") if self._options.of_many else "")

    def note_end(self, record: RequestRecord) -> None:
        """Do nothing: a call is recorded once its answer has been sent."""

    def write(self, model: str, line: bytes, taken: int) -> None:
        """Write the line of a call, whose memory is given back then."""
        self._queue.put((model, line, taken))

    def close(self) -> None:
        """Write what is queued, for a while. A process that a script has forked has no thread to do so."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(FLUSH_SECONDS)
        if self._thread.is_alive():
            log.warning("data capture: %d request(s) are lost at the end", self._queue.qsize())

    def take(self, size: int) -> bool:
        """Take memory for a call, or give it back; False if there is too little: the call is dropped."""
        with self._lock:
            fits = size <= self._free_bytes
            self._free_bytes -= size if fits else 0
        if not fits:
            self._drop(f"{MEMORY_BYTES // MEGABYTE} MB of them are in memory")
        return fits

    def _run(self) -> None:
        for model, line, taken in iter(self._queue.get, None):
            try:
                self._append(model, line, time.time())
                self.written += 1
            except OSError as error:
                self._drop(f"{self._folder} can't be written: {error.strerror}")
            self.take(-taken)

    def _drop(self, reason: str) -> None:
        """Count a call that is lost, and say so once in a while."""
        with self._lock:
            self.dropped += 1
        if (now := time.monotonic()) - self._warned_at >= WARNING_SECONDS:
            self._warned_at = now
            log.warning("data capture: %d request(s) were dropped so far: %s", self.dropped, reason)

    def _append(self, model: str, line: bytes, now: float) -> None:
        path, began, size = self._files.get(model, (self._folder, 0.0, 0))
        if size >= FILE_BYTES or not 0 <= now - began < FILE_SECONDS:
            self._files = {name: file for name, file in self._files.items() if now - file[1] < FILE_SECONDS}
            # Make room, whichever worker has written the other files, and if another one is at it.
            with suppress(FileNotFoundError):
                files = sorted(self._folder.rglob(f"[0-9]*T*Z-*{ENDING}"), key=lambda path: path.name)
                left = sum(map(os.path.getsize, files))
                while files and left > FOLDER_BYTES - FILE_BYTES:
                    left -= files[0].stat().st_size
                    files[0].unlink()
                    megabytes = FOLDER_BYTES // MEGABYTE
                    log.info("data capture: %s is removed, the oldest of %d MB", files.pop(0), megabytes)
            text = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime(now))
            path = self._folder / model / f"{text}-{uuid4().hex}{ENDING}"
            began = now
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:  # for each line: someone may have moved the file away
            self._files[model] = path, began, file.tell()
            if file.write(line) < len(line):
                file.truncate(self._files[model][2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Copy:
    """Call of ``capture`` with its answer, copied as that is sent.

    Failures are not recorded, nor answers that break off, nor bodies that a script reads in parts.
    """

    def __init__(self, capture: Capture, environ: dict[str, Any], model: str) -> None:
        self._capture = capture
        self._environ = environ
        self._model = model
        self._content_type: str | None = None
        self._pieces: list[bytes] = []
        self._taken = 0
        self._is_kept = False

    def start(self, status: str, headers: Sequence[tuple[str, str]]) -> None:
        self._content_type = {name.lower(): value for name, value in headers}.get("content-type")
        body = self._environ[BODY]
        self._is_kept = status < "400" and body is not None and self._fits(body)

    def note_piece(self, piece: bytes) -> None:
        self._is_kept = self._is_kept and self._fits(piece)
        if self._is_kept:
            self._pieces.append(piece)

    def end(self, *, is_whole: bool) -> None:
        if is_whole and self._is_kept:
            environ = self._environ
            request = CapturedRequest(environ[BODY], environ.get("CONTENT_TYPE"), environ.get(_ATTRIBUTES))
            line = line_of(request, b"".join(self._pieces), self._content_type, environ.get(_INFERENCE_ID))
            self._capture.write(self._model, line, self._taken)
        else:
            self._capture.take(-self._taken)
        self._is_kept = False
        self._taken = 0

    def _fits(self, piece: bytes) -> bool:
        size = PIECE_BYTES + len(piece)
        fits = self._capture.take(size)
        self._taken += size if fits else 0
        return fits
