"""Warm-up of a worker with the model's recorded requests, so that its first request is fast.

`worker.wsgi` begins it when the application is there; requests use its imports and connections. The worker's
first heartbeat waits for its end, so that a run is not ready before.
"""

import io
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any
from wsgiref.util import setup_testing_defaults

from tfs_proxy.serving.upstream.interface import Upstream
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.values.layout import recorded_requests
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Target
from tfs_proxy.wire.media_types import NPY
from tfs_proxy.wire.routes import INVOCATIONS

LOOK_SECONDS = 0.02
LONGEST_RECORD_BYTES = 64 * 1024 * 1024
CALLS = 3
"""Number of calls: Python itself runs a function faster after its first ones."""

NUMBERS = frozenset("biuf")
"""Kinds of arrays that npy bodies are written from."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_log = logging.getLogger(__name__)


def begin(
    deployment: Deployment, upstream: Upstream, serves: Callable[[Target], bool], app: Application | None
) -> Thread | None:
    """Import modules of calls, then send the default model's first recorded request once it ``serves``.

    It goes through ``app`` if there is one, and if it can be written as a body. Returns the thread; None
    without such a request.
    """
    path = recorded_requests(deployment.graph_folders.get(deployment.default_model))
    if path is None:
        return None
    # While the model is loaded: the first call would wait for it.
    from tfs_proxy.data.formats import npy  # noqa: F401

    call = Thread(target=_warm_up, args=(deployment, path, upstream, serves, app), daemon=True)
    call.start()
    return call


def _warm_up(
    deployment: Deployment,
    path: Path,
    upstream: Upstream,
    serves: Callable[[Target], bool],
    app: Application | None,
) -> None:
    from google.protobuf.message import DecodeError

    target = Target(deployment.default_model)
    deadline = time.monotonic() + deployment.times.load_seconds
    while not serves(target):
        if time.monotonic() > deadline:
            return
        time.sleep(LOOK_SECONDS)
    try:
        from tfs_proxy.data.formats.framing import tfrecords
        from tfs_proxy.data.formats.npy import write_npy
        from tfs_proxy.wire.protos import PredictionLog
        from tfs_proxy.wire.protos.tensors import to_array

        with path.open("rb") as file:
            frame = next(tfrecords(file, max_bytes=LONGEST_RECORD_BYTES))
        request = PredictionLog.FromString(bytes(frame.payload)).predict_log.request
        inputs = {name: to_array(tensor) for name, tensor in request.inputs.items()}
        signature = request.model_spec.signature_name or DEFAULT_SIGNATURE
        arrays = tuple(inputs.values())
        plain = signature == DEFAULT_SIGNATURE and len(arrays) == 1 and arrays[0].dtype.kind in NUMBERS
        body = write_npy(arrays[0]) if plain else None
        for _ in range(CALLS):
            if app is None or body is None:
                upstream.predict(Target(target.model, signature=signature), Batch(inputs, 1))
            else:
                _post(app, body)
    except (TfsProxyError, DecodeError, StopIteration, ValueError, OSError) as error:
        # The model server reads the same file, and reports its faults.
        _log.debug("no first call: %s", error)


def _post(app: Application, body: bytes) -> None:
    """Send a request to ``/invocations``, and ignore the answer."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": INVOCATIONS.path,
        "CONTENT_TYPE": NPY,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    setup_testing_defaults(environ)
    statuses: list[str] = []
    for _ in app(environ, lambda status, *_: statuses.append(status)):
        pass
    _log.debug("the first call was answered with %s", *statuses)
