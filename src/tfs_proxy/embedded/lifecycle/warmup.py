"""Replays a model's recorded requests before it becomes available.

The file is TF Serving's: ``assets.extra/tf_serving_warmup_requests``, a TFRecord of PredictionLog.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tfs_proxy.embedded.core import prediction_service
from tfs_proxy.embedded.core.examples import multi_inference
from tfs_proxy.embedded.core.process_ledger import budget_of
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.errors import BadInput, PayloadTooLarge
from tfs_proxy.layout import WARMUP_FILE
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.payload.formats.framing import tfrecords
from tfs_proxy.protos import PredictionLog
from tfs_proxy.wire.grpc_codes import GrpcCode

MAX_RECORDS = 1000

_METHODS: Mapping[str | None, Callable[[LoadedServable, Any, MemoryBudget], object]] = {
    "predict_log": prediction_service.predict,
    "classify_log": prediction_service.classify,
    "regress_log": prediction_service.regress,
    "multi_inference_log": multi_inference,
}
"""What replays each kind of recorded request."""


def warm_up(servable: LoadedServable, folder: Path, *, iterations: int = 1) -> int:
    """Replay the requests of a version's folder, each this many times; returns how many there were.

    Raises ServingError if the file is not a TFRecord file, or a request of it fails.
    """
    path = folder / WARMUP_FILE
    count = 0
    for record in _records(path):
        count += 1
        if count > MAX_RECORDS:
            raise invalid(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}")
        for _ in range(max(1, iterations)):
            _replay(servable, record)
    return count


def _records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file. Raises ServingError if it is not one, or if it is damaged."""
    with path.open("rb") as file:
        try:
            for frame in tfrecords(file, max_bytes=path.stat().st_size):
                yield bytes(frame.payload)
        except (BadInput, PayloadTooLarge) as error:
            raise ServingError(
                GrpcCode.DATA_LOSS, f"{path}: {error} Please verify your warmup data is in TFRecord format."
            ) from error


def _replay(servable: LoadedServable, record: bytes) -> None:
    """Run one recorded request; as in TF Serving, one of an unknown kind does not count."""
    try:
        log = PredictionLog.FromString(record)
    except DecodeError as error:
        raise invalid("Failed to parse warmup record: no PredictionLog") from error
    kind = log.WhichOneof("log_type")
    if kind == "session_run_log":
        number = PredictionLog.SESSION_RUN_LOG_FIELD_NUMBER
        raise ServingError(GrpcCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {number}")
    if kind in _METHODS:
        _METHODS[kind](servable, getattr(log, kind).request, budget_of())
