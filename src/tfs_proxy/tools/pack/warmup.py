"""Makes a model's first requests quick: makes requests, tries them, and records them in its versions."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.data.capture import CapturedRequest
from tfs_proxy.data.formats.framing import tfrecord_frame
from tfs_proxy.model.graph_inputs import GraphInputs, read_graph_inputs
from tfs_proxy.model.openapi.examples import sample_string
from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.model.report.served import Served
from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.serving.upstream.binary import request_message
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.pack.trial_server import Predict, trial_server
from tfs_proxy.values.batch import BYTES, Batch
from tfs_proxy.values.errors import BadInput, DiscoveryError, SettingsError
from tfs_proxy.values.layout import WARMUP_FILE, Workspace
from tfs_proxy.values.signature import (
    DEFAULT_SIGNATURE,
    PREDICT_METHOD,
    Signature,
    Target,
    TensorSpec,
    default_signature,
)
from tfs_proxy.wire import protos
from tfs_proxy.wire.dtypes import array_type
from tfs_proxy.wire.error_body import error_text

MOST_SIZES = 64
"""Limit of recorded sizes: a version is loaded only after it has answered every request."""


def batch_sizes(settings: Settings) -> tuple[int, ...]:
    """All sizes up to the largest, or powers of two if they are many; 1 without batching."""
    if not settings.enable_batching:
        return (1,)
    most = settings.max_batch_size
    if most <= MOST_SIZES:
        return tuple(range(1, most + 1))
    powers = (1 << exponent for exponent in range(most.bit_length()))
    return (*(size for size in powers if size < most), most)


MOST_VALUES = 256 * 1024 * 1024


def sample_batches(signature: Signature, graph: GraphInputs, batch_sizes: tuple[int, ...]) -> Iterator[Batch]:
    """A batch of zeros of each size; other open sizes are 1. Raises SettingsError if none can be made."""
    string = sample_string(signature, graph)
    if string is None:
        raise SettingsError(
            f"The signature {signature.name} takes pictures of one size, which its graph does not tell: give "
            "requests with --request."
        )
    for records in batch_sizes:
        inputs = {name: _array(name, spec, records, string) for name, spec in signature.inputs.items()}
        yield Batch(inputs, records)


def _array(name: str, spec: TensorSpec, records: int, string: bytes) -> npt.NDArray[Any]:
    shape = (None,) if spec.shape is None else spec.shape  # a vector, if the rank is open
    unknown = [records, *[1] * len(shape)]
    sizes = [unknown[axis] if size is None else size for axis, size in enumerate(shape)]
    if np.prod(sizes, dtype=float) > MOST_VALUES:
        raise SettingsError(f"The input {name} of shape {sizes} is too large for a request.")
    try:
        dtype = array_type(spec)
    except BadInput as error:
        raise SettingsError(f"No request can be made for the input {name}: {error}") from None
    return np.full(sizes, string, BYTES) if dtype == BYTES else np.zeros(sizes, dtype)


MOST_RECORDS = 1000
"""Limit of records with which a version still loads (docs/reference/tensorflow-serving.md)."""


class RecordedRequest(Struct, frozen=True):
    """A request to a model server; ``origin`` names it in errors."""

    target: Target
    batch: Batch
    origin: str


def made_up(
    target: Target, folder: Path, signatures: Mapping[str, Signature], sizes: tuple[int, ...]
) -> Iterator[RecordedRequest]:
    """A request of each size for the default signature for predict, else for all of them.

    Raises SettingsError if none can be made.
    """
    graph = read_graph_inputs(folder)
    predicting = {key: each for key, each in signatures.items() if each.method == PREDICT_METHOD}
    if not predicting:
        raise SettingsError("The model has no signature for predict, which requests are made for.")
    default = default_signature(predicting)
    for signature in predicting.values() if default is None else [default]:
        named = replace(target, signature=signature.name)
        for size, batch in zip(sizes, sample_batches(signature, graph, sizes), strict=True):
            yield RecordedRequest(named, batch, f"the request made for {signature.name}, batch size {size},")


def of_clients(
    requests: Iterable[CapturedRequest], served: Served, settings: Settings
) -> Iterator[RecordedRequest]:
    """The model server's requests that the archive's script makes of a client's requests.

    Raises SettingsError for a request that is refused, and ScriptLoadError for the script.
    """
    from tfs_proxy import testing

    with testing.load(served.layout.root, settings=settings) as script:
        for number, request in enumerate(requests, 1):
            earlier = len(script.calls)
            reply = script.post(
                request.body, request.content_type, custom_attributes=request.custom_attributes
            )
            if reply.status >= HTTPStatus.BAD_REQUEST:
                raise SettingsError(f"Request {number} is refused with {reply.status}: {reply.text}")
            for call in script.calls[earlier:]:
                yield RecordedRequest(call.target, Batch(call.inputs, 1), f"request {number}")


def file_of(requests: Sequence[RecordedRequest], signatures: Mapping[str, Signature]) -> bytes:
    """The requests in the model server's format: TFRecords of PredictionLog. Raises SettingsError."""
    if len(requests) > MOST_RECORDS:
        raise SettingsError(
            f"{len(requests)} requests are too many: a model server takes {MOST_RECORDS} for a version."
        )
    return b"".join(tfrecord_frame(_record(request, signatures)) for request in requests)


def _record(request: RecordedRequest, signatures: Mapping[str, Signature]) -> bytes:
    log = protos.PredictionLog()
    signature = signatures[request.target.signature or DEFAULT_SIGNATURE]
    message = request_message(replace(request.target, version=None, label=None), request.batch, signature)
    log.predict_log.request.MergeFromString(message)
    return log.SerializeToString(deterministic=True)


REPEATS = 20
"""Number of requests whose median the first ones are compared with."""


class _Version(Struct, frozen=True):
    target: Target
    folder: Path
    signatures: Mapping[str, Signature]
    requests: Sequence[RecordedRequest]


def warm_up(prepared: Prepared, workspace: Workspace, clients: Sequence[CapturedRequest]) -> tuple[str, ...]:
    """Records requests in the versions of ``prepared``; returns a line for each, with latencies.

    The requests are those of ``clients``, else made from the signatures. A model server has answered each,
    and has loaded each version with them. Raises SettingsError for requests that can't be made or are
    refused, ModelLoadError if a version does not load with them.
    """
    versions = tuple(_versions(prepared, clients))
    with trial_server(prepared, workspace, warms_up=False) as predict:
        cold = [_try_all(predict, version) for version in versions]
    for version in versions:
        file = version.folder / WARMUP_FILE
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)  # it may be a hard link to the file that is packed
        file.write_bytes(file_of(version.requests, version.signatures))
    with trial_server(prepared, workspace, warms_up=True) as predict:
        return tuple(_line(predict, *each) for each in zip(versions, cold, strict=True))


def _versions(prepared: Prepared, clients: Sequence[CapturedRequest]) -> Iterator[_Version]:
    by_model = defaultdict[str, list[RecordedRequest]](list)
    if clients:
        for request in of_clients(clients, prepared.served, prepared.settings):
            by_model[request.target.model].append(request)
        if not by_model:
            raise SettingsError("None of the requests asks a model.")
    for model in prepared.served.models:
        for number, folder in model.versions.items():
            if not clients or model.name in by_model:
                yield _version(
                    prepared.settings, Target(model.name, version=number), folder, by_model[model.name]
                )


def _version(
    settings: Settings, target: Target, folder: Path, clients: Sequence[RecordedRequest]
) -> _Version:
    summary = read_saved_model(folder)
    if summary is None:
        raise DiscoveryError(f"{folder} has no saved_model.pb, whose signatures requests are made from.")
    version = target.version
    requests = [replace(each, target=replace(each.target, version=version, label=None)) for each in clients]
    if not clients:
        requests = list(made_up(target, folder, summary.signatures, batch_sizes(settings)))
    return _Version(target, folder, summary.signatures, requests)


def _try_all(predict: Predict, version: _Version) -> float:
    """Milliseconds of the first request. Raises SettingsError if any is refused: no load would succeed."""
    took = []
    for request in version.requests:
        try:
            took.append(_milliseconds(predict, version, request))
        except BadInput as error:
            origin = request.origin[0].upper() + request.origin[1:]
            raise SettingsError(
                f"{origin} is refused by the model: {error}. Give requests that it takes with --request."
            ) from None
    return took[0]


def _line(predict: Predict, version: _Version, cold_ms: float) -> str:
    """Measures what the requests are worth, for a line of the report."""
    target = version.target
    first = version.requests[0]
    count = len(version.requests)
    warm_ms = _milliseconds(predict, version, first)
    later_ms = statistics.median(_milliseconds(predict, version, first) for _ in range(REPEATS))
    return (
        f"{target.model} version {target.version}: {count} request{'s' if count > 1 else ''}; the first "
        f"request takes {warm_ms:.1f} ms instead of {cold_ms:.1f}, later ones {later_ms:.1f}"
    )


def _milliseconds(predict: Predict, version: _Version, request: RecordedRequest) -> float:
    signature = version.signatures[request.target.signature or DEFAULT_SIGNATURE]
    message = request_message(request.target, request.batch, signature)
    began = time.perf_counter()
    answer = predict(message)
    if not answer.ok:
        raise BadInput(error_text(answer.body) or f"status {answer.status}")
    return (time.perf_counter() - began) * 1000
