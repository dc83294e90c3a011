"""Leaves models recorded requests, which a server warms them up with."""

from pathlib import Path
from typing import Any

import numpy as np

from support.predict_messages import request_bytes
from tfs_proxy.data.formats.framing import tfrecord_frame
from tfs_proxy.wire import protos
from tfs_proxy.wire.protos.predict import model_spec


def recorded(name: str, rows: list[Any]) -> bytes:
    """A recorded predict request with one input, of strings or of floats."""
    log = protos.PredictionLog()
    array = np.array(rows, object if isinstance(rows[0], bytes) else np.float32)
    log.predict_log.request.MergeFromString(request_bytes(model_spec("m"), {name: array}))
    return log.SerializeToString()


def warm_up_with(version: Path, *records: bytes) -> None:
    """Leave a version recorded requests."""
    (version / "assets.extra").mkdir()
    file = version / "assets.extra" / "tf_serving_warmup_requests"
    file.write_bytes(b"".join(map(tfrecord_frame, records)))
