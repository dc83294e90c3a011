"""Loads a model's version, and replays its recorded requests before it becomes available.

The file is TF Serving's: ``assets.extra/tf_serving_warmup_requests``, a TFRecord of PredictionLog.
"""

import gc
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from tfs_proxy.data.formats.framing import tfrecords
from tfs_proxy.embedded.core import predict as prediction_service
from tfs_proxy.embedded.core.examples import multi_inference
from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.core.process_ledger import budget_of
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.errors import ServingError, invalid, tensorflow_errors
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.model_config import own_options, read_options
from tfs_proxy.embedded.tensorflow.shape_guard import CRASHING_OPS, ShapeGuard
from tfs_proxy.values.errors import BadInput, PayloadTooLarge, SettingsError
from tfs_proxy.values.layout import WARMUP_FILE
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import PredictionLog

if TYPE_CHECKING:
    from tfs_proxy.embedded import batching
    from tfs_proxy.embedded.tensorflow import session

    Loaded = session.SessionBackend | batching.BatchingBackend | ShapeGuard

log = logging.getLogger(__name__)

MAX_RECORDS = 1000

_METHODS: Mapping[str | None, Callable[[LoadedServable, Any, MemoryBudget], object]] = {
    "predict_log": prediction_service.predict,
    "classify_log": prediction_service.classify,
    "regress_log": prediction_service.regress,
    "multi_inference_log": multi_inference,
}
"""Functions that replay each kind of recorded request."""

_COLLECT_AFTER = (50_000, 20, 100)


def warm_up(servable: LoadedServable, folder: Path) -> int:
    """Replay the requests of a version's folder; returns how many there were.

    Raises ServingError if the file is not a TFRecord file, or a request of it fails.
    """
    path = folder / WARMUP_FILE
    if not path.is_file():  # to open a named pipe waits for ever
        raise invalid(f"{path} is not a file.")
    count = 0
    for record in _records(path):
        count += 1
        if count > MAX_RECORDS:
            raise invalid(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}")
        try:
            entry = PredictionLog.FromString(record)
        except DecodeError as error:
            raise invalid("Failed to parse warmup record: no PredictionLog") from error
        kind = entry.WhichOneof("log_type")
        if kind == "session_run_log":
            number = PredictionLog.SESSION_RUN_LOG_FIELD_NUMBER
            raise ServingError(GrpcCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {number}")
        # As in TF Serving, a record of an unknown kind does not count.
        if kind in _METHODS:
            _METHODS[kind](servable, getattr(entry, kind).request, budget_of())
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


class Loader:
    """Makes servables as the flags say; the first load imports TensorFlow.

    Raises SettingsError if the batching parameters, or the options for sessions, can't be used.
    """

    def __init__(self, flags: ModelServerFlags, metrics: Metrics) -> None:
        batches = flags.enable_batching
        self._batching = read_options(flags.batching_parameters_file) if batches else None
        self._metrics = metrics
        self._flags = flags
        self._importing = threading.Lock()
        self._imported = False
        if flags.tensorflow_session_config_file:
            try:
                self.prepare()
            except ServingError as error:
                raise SettingsError(f"Failed to start server. Error: {error.text}") from error

    def prepare(self) -> None:
        """Import TensorFlow, once.

        What is imported lives as long as the process: the garbage collector leaves it out, which
        makes large JSON bodies several times cheaper to read.
        """
        with self._importing:
            if not self._imported:
                with tensorflow_errors():
                    from tfs_proxy.embedded.tensorflow import session
                self._session_config = session.session_config(self._flags)
                gc.collect()
                gc.freeze()
                gc.set_threshold(*_COLLECT_AFTER)
                self._imported = True

    def __call__(self, name: str, version: int, folder: Path) -> LoadedServable:
        """Load, and warm up. Raises ServingError."""
        self.prepare()
        log.info("Loading servable version {name: %s version: %d} from %s", name, version, folder)
        backend = self._backend(folder)
        check_methods = self._flags.enable_signature_method_name_check
        servable = LoadedServable(
            name, version, backend.signatures, backend, self._metrics, check_methods=check_methods
        )
        if self._flags.enable_model_warmup and (folder / WARMUP_FILE).exists():
            try:
                count = warm_up(servable, folder)
            except BaseException:
                backend.close()
                raise
            log.info("Warmed up {name: %s version: %d} with %d requests", name, version, count)
        return servable

    def _backend(self, folder: Path) -> "Loaded":
        from tfs_proxy.embedded import batching
        from tfs_proxy.embedded.tensorflow import session

        options = self._batching
        if options is not None and self._flags.enable_per_model_batching_parameters:
            options = own_options(folder, options)
        with tensorflow_errors():
            backend = session.SessionBackend(folder, self._session_config)
        loaded: Loaded = backend
        if options is not None:
            loaded = batching.BatchingBackend(backend, options)
        if backend.op_types & CRASHING_OPS:
            return ShapeGuard(loaded, backend.signatures, backend.static_sizes, compiled=backend.compiled)
        return loaded
