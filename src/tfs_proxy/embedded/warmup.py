"""Replays a model's recorded requests before it becomes available.

The file is TF Serving's: ``assets.extra/tf_serving_warmup_requests``, a TFRecord of PredictionLog.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError

from tfs_proxy.embedded import requests
from tfs_proxy.embedded.errors import Code, ServingError, invalid
from tfs_proxy.embedded.servable import Servable
from tfs_proxy.protos import PredictionLog

FILE = Path("assets.extra") / "tf_serving_warmup_requests"
MAX_RECORDS = 1000

_LENGTH = struct.Struct("<Q")
_CHECKSUM_BYTES = 4


def warm_up(servable: Servable, folder: Path, *, iterations: int = 1) -> int:
    """Replay the requests of a version's folder, each this many times; returns how many there were.

    Raises ServingError where the file is no TFRecord, or a request of it fails.
    """
    path = folder / FILE
    count = 0
    for record in _records(path):
        count += 1
        if count > MAX_RECORDS:
            raise invalid(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}")
        for _ in range(max(1, iterations)):
            _replay(servable, record)
    return count


def _records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file; their checksums are not looked at."""
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size + _CHECKSUM_BYTES):
            if len(head) < _LENGTH.size + _CHECKSUM_BYTES:
                raise _truncated(path)
            (size,) = _LENGTH.unpack_from(head)
            rest = path.stat().st_size - file.tell()
            if size + _CHECKSUM_BYTES > rest:
                raise _truncated(path)
            yield file.read(size + _CHECKSUM_BYTES)[:size]


def _truncated(path: Path) -> ServingError:
    return ServingError(
        Code.DATA_LOSS,
        f"truncated record in {path}. Please verify your warmup data is in TFRecord format.",
    )


def _replay(servable: Servable, record: bytes) -> None:
    """Run one recorded request; as in TF Serving, one of a kind that nobody knows is no request."""
    try:
        log = PredictionLog.FromString(record)
    except DecodeError as error:
        raise invalid("Failed to parse warmup record: no PredictionLog") from error
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        requests.predict(servable, log.predict_log.request)
    elif kind == "classify_log":
        requests.classify(servable, log.classify_log.request)
    elif kind == "regress_log":
        requests.regress(servable, log.regress_log.request)
    elif kind == "multi_inference_log":
        requests.multi_inference(servable, log.multi_inference_log.request)
    elif kind == "session_run_log":
        number = PredictionLog.SESSION_RUN_LOG_FIELD_NUMBER
        raise ServingError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {number}")
