"""gRPC's ProfilerService, which TensorBoard and ``tf.profiler.experimental.client.trace`` ask for a profile.

Records what TensorFlow does during that time, and writes it to the folder that the caller names, or answers
with it if the caller asks for that, as TF Serving does. The levels that a request sets for its tracers are
ignored.
"""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.embedded.grpc_services import CallContext, Handler
from tfs_proxy.embedded.model_config import is_uri
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import ProfileRequest, ProfileResponse, TerminateRequest, TerminateResponse

SERVICE = "tensorflow.ProfilerService"

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_MILLIS = 1e3
_LONG_BYTES = 1 << 20


class Profiler:
    """The service's methods; ``prepare`` imports TensorFlow."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._lock = threading.Lock()
        self._session = ""
        self._ends: threading.Event | None = None
        self._closed = False

    def handlers(self) -> Mapping[str, Mapping[str, Handler]]:
        return {SERVICE: {"Profile": self.profile, "Terminate": self.terminate, "Monitor": self.monitor}}

    def profile(self, message: bytes, context: CallContext) -> bytes:
        """ProfilerService.Profile: answers once the time is over, or `terminate` asks for it.

        Raises ServingError if the names are not file names, if the folder is not local (relative
        it may be: TensorFlow's client sends what its user wrote) or can't be written, if another profile
        is being taken, and if the caller has gone.
        """
        request = ProfileRequest.FromString(message)
        target = None if request.emit_xspace else _target(request)
        with self._ending(request.session_id) as ends:
            recorded = self._record(request.opts.duration_ms / _MILLIS, ends, context)
        if not context.is_active():
            raise ServingError(GrpcCode.CANCELLED, "The caller has disconnected")
        if target is not None:
            _write(target, recorded)
        return ProfileResponse(
            empty_trace=_is_empty(recorded), xspace=recorded if target is None else b""
        ).SerializeToString()

    def terminate(self, message: bytes, _context: CallContext) -> bytes:
        """ProfilerService.Terminate: a profile that is being taken ends now."""
        request = TerminateRequest.FromString(message)
        with self._lock:
            if self._ends is not None and request.session_id == self._session:
                self._ends.set()
        return TerminateResponse().SerializeToString()

    def monitor(self, _message: bytes, _context: CallContext) -> bytes:
        """ProfilerService.Monitor, which TF Serving does not implement either."""
        raise ServingError(GrpcCode.UNIMPLEMENTED, "unimplemented.")

    def close(self) -> None:
        """End the profile that is being taken, and those to come at once."""
        with self._lock:
            self._closed = True
            if self._ends is not None:
                self._ends.set()

    @contextmanager
    def _ending(self, session: str) -> Iterator[threading.Event]:
        ends = threading.Event()
        with self._lock:
            if self._ends is not None:
                raise ServingError(GrpcCode.INTERNAL, "Another profiling session active.")
            if self._closed:
                ends.set()
            self._session, self._ends = session, ends
        try:
            yield ends
        finally:
            with self._lock:
                self._ends = None

    def _record(self, seconds: float, ends: threading.Event, context: CallContext) -> bytes:
        """A serialized XSpace of what happens in the next ``seconds``."""
        self._prepare()
        from tfs_proxy.embedded.tensorflow import runtime

        recorder = runtime.profiler_session()
        with tempfile.TemporaryDirectory(prefix="tfs-proxy-profile-") as folder:
            recorder.start(folder, {})
            log.info("Profiling for up to %g s", seconds)
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0 and context.is_active():
                if ends.wait(min(left, _LOOK_SECONDS)):
                    break
            recorder.export_to_tb()
            (written,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
            return written.read_bytes()


def _is_empty(recorded: bytes) -> bool:
    """True if nothing happened; a long recording, which takes long to read, holds something."""
    from tfs_proxy.embedded.tensorflow import runtime

    return len(recorded) < _LONG_BYTES and not runtime.has_events(recorded)


def _target(request: ProfileRequest) -> Path:
    if is_uri(request.repository_root):
        raise invalid(f"repository_root must be a local folder, not {request.repository_root!r}")
    for name in (request.session_id, request.host_name):
        if name in {"", ".."} or Path(name).name != name:
            raise invalid(f"session_id and host_name must be file names, not {name!r}")
    return (
        Path(request.repository_root)
        / request.session_id
        / f"{request.host_name.replace(':', '_')}.xplane.pb"
    )


def _write(target: Path, recorded: bytes) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(recorded)
        log.info("Wrote a profile to %s", target)
    except (OSError, ValueError) as error:
        raise ServingError(GrpcCode.INTERNAL, f"Can't write {os.fspath(target)}: {error}") from error
