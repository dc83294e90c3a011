"""A worker's own warm-up: its first request is as fast as later ones if the model has recorded requests.

`web.wsgi` begins it when the application is there; what it imports and opens, requests find.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from tfs_proxy.batch import Batch
from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import TfsProxyError
from tfs_proxy.layout import WARMUP_FILE
from tfs_proxy.signature import DEFAULT_SIGNATURE, Target
from tfs_proxy.upstream.interface import Upstream

LOOK_SECONDS = 0.02
LONGEST_RECORD_BYTES = 64 * 1024 * 1024

_log = logging.getLogger(__name__)


def begin(deployment: Deployment, upstream: Upstream, serves: Callable[[Target], bool]) -> None:
    """Import what calls need, then send the default model's first recorded request once it ``serves``."""
    folder = deployment.graph_folders.get(deployment.default_model)
    if folder is None or not (Path(folder) / WARMUP_FILE).is_file():
        return
    # PERF: while the model is loaded: the first call would wait for it.
    from tfs_proxy.payload.formats import npy  # noqa: F401

    Thread(
        target=_warm_up, args=(deployment, Path(folder) / WARMUP_FILE, upstream, serves), daemon=True
    ).start()


def _warm_up(
    deployment: Deployment, path: Path, upstream: Upstream, serves: Callable[[Target], bool]
) -> None:
    from google.protobuf.message import DecodeError

    target = Target(deployment.default_model)
    deadline = time.monotonic() + deployment.wait_time_seconds
    while not serves(target):
        if time.monotonic() > deadline:
            return
        time.sleep(LOOK_SECONDS)
    try:
        signature, batch = _first_recorded(path)
        answer = upstream.predict(Target(target.model, signature=signature), batch)
    except (TfsProxyError, DecodeError, StopIteration, ValueError, OSError) as error:
        # The model server reads the same file, and tells what is wrong with it.
        _log.debug("no first call: %s", error)
    else:
        _log.debug("the first call was answered with %d", answer.status)


def _first_recorded(path: Path) -> tuple[str, Batch]:
    """Signature and inputs of the first record; raises BadInput or ValueError if it is not for predict."""
    from tfs_proxy.payload.formats.framing import tfrecords
    from tfs_proxy.protos import PredictionLog
    from tfs_proxy.protos.tensors import to_array

    with path.open("rb") as file:
        frame = next(tfrecords(file, max_bytes=LONGEST_RECORD_BYTES))
    request = PredictionLog.FromString(bytes(frame.payload)).predict_log.request
    inputs = {name: to_array(tensor) for name, tensor in request.inputs.items()}
    return request.model_spec.signature_name or DEFAULT_SIGNATURE, Batch(inputs, 1)
