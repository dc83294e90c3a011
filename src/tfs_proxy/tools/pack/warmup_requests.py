"""Requests that a warm-up records: batches made from a signature, or a client's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.data.capture.record import CapturedRequest
from tfs_proxy.data.formats.framing import tfrecord_frame
from tfs_proxy.model.graph_inputs import GraphInputs, read_graph_inputs
from tfs_proxy.model.openapi.examples import sample_string
from tfs_proxy.model.report.served import Served
from tfs_proxy.model.report.serving_flags import ServingFlags
from tfs_proxy.serving.upstream.binary import request_message
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.pack.options import Fill, WarmupOptions
from tfs_proxy.values.batch import BYTES, Batch
from tfs_proxy.values.errors import BadInput, SettingsError
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, Target, TensorSpec
from tfs_proxy.wire import protos
from tfs_proxy.wire.dtypes import array_type

FLAG = "batching_parameters_file"
MOST_SIZES = 64
"""Limit of recorded sizes: a version is loaded only after it has answered every request."""


def batch_sizes(settings: Settings) -> tuple[int, ...]:
    """Sizes that the user's batching file allows, else all up to the largest; 1 without batching.

    Raises SettingsError if the file can't be read.
    """
    own_file = ServingFlags(settings.extra_args).value(FLAG)
    if own_file:
        allowed = _allowed_in(own_file)
        if allowed:
            return allowed
    if not settings.enable_batching:
        return (1,)
    most = settings.max_batch_size
    if most <= MOST_SIZES:
        return tuple(range(1, most + 1))
    powers = (1 << exponent for exponent in range(most.bit_length()))
    return (*(size for size in powers if size < most), most)


def _allowed_in(own_file: str) -> tuple[int, ...]:
    from google.protobuf import text_format

    from tfs_proxy.wire.protos import POOL, BatchingParameters

    try:
        text = Path(own_file).read_text(encoding="utf-8")
        parameters = text_format.Parse(text, BatchingParameters(), descriptor_pool=POOL)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise SettingsError(f"--{FLAG}={own_file} can't be read: {error}.") from None
    return tuple(sorted({size for size in parameters.allowed_batch_sizes if size > 0}))[:MOST_SIZES]


MOST_VALUES = 256 * 1024 * 1024


def sample_batches(
    signature: Signature, graph: GraphInputs, options: WarmupOptions, batch_sizes: tuple[int, ...]
) -> Iterator[Batch]:
    """A batch of each size. Raises SettingsError if none can be made for the signature."""
    string = sample_string(signature, graph)
    if string is None:
        raise SettingsError(
            f"The signature {signature.name} takes pictures of one size, which its graph does not tell: give "
            "requests with --request."
        )
    random = np.random.default_rng(0)  # the same requests each time
    for records in batch_sizes:
        inputs = {
            name: _array(name, spec, _sizes(spec, records, options.open_size), string, options.fill, random)
            for name, spec in signature.inputs.items()
        }
        yield Batch(inputs, records)


def _sizes(spec: TensorSpec, records: int, open_size: int) -> tuple[int, ...]:
    """The shape of a batch; an unknown rank is a vector."""
    shape = (None,) if spec.shape is None else spec.shape
    return tuple(
        size if size is not None else records if axis == 0 else open_size for axis, size in enumerate(shape)
    )


def _array(
    name: str,
    spec: TensorSpec,
    sizes: tuple[int, ...],
    string: bytes,
    fill: Fill,
    random: np.random.Generator,
) -> npt.NDArray[Any]:
    if np.prod(sizes, dtype=float) > MOST_VALUES:
        raise SettingsError(f"The input {name} of shape {list(sizes)} is too large for a request.")
    try:
        dtype = array_type(spec)
    except BadInput as error:
        raise SettingsError(f"No request can be made for the input {name}: {error}") from None
    if dtype == BYTES:
        return np.full(sizes, string, BYTES)
    if fill is Fill.ZEROS:
        return np.zeros(sizes, dtype)
    # Whole numbers are often indices of a table: small ones are valid in each.
    values = random.random(sizes) if dtype.kind in "fc" else random.integers(0, 2, sizes)
    return np.asarray(values, dtype)


MOST_RECORDS = 1000
"""Limit of records with which a version still loads (docs/reference/tensorflow-serving.md)."""


class RecordedRequest(Struct, frozen=True):
    """A request to a model server; ``origin`` names it in errors."""

    target: Target
    batch: Batch
    origin: str


def made_up(
    target: Target,
    folder: Path,
    signatures: Mapping[str, Signature],
    options: WarmupOptions,
    sizes: tuple[int, ...],
) -> Iterator[RecordedRequest]:
    """A request of each size for each signature. Raises SettingsError if none can be made."""
    graph = read_graph_inputs(folder)
    for signature in _chosen(signatures, options.signature):
        named = replace(target, signature=signature.name)
        for size, batch in zip(sizes, sample_batches(signature, graph, options, sizes), strict=True):
            yield RecordedRequest(named, batch, f"the request made for {signature.name}, batch size {size},")


def _chosen(signatures: Mapping[str, Signature], name: str | None) -> Sequence[Signature]:
    """The predict signatures that requests are made for. Raises SettingsError if there are none."""
    predicting = {key: each for key, each in signatures.items() if each.method == PREDICT_METHOD}
    if not predicting:
        raise SettingsError("The model has no signature for predict, which requests are made for.")
    if name is None:
        return [predicting[DEFAULT_SIGNATURE]] if DEFAULT_SIGNATURE in predicting else [*predicting.values()]
    if name not in predicting:
        there = ", ".join(sorted(predicting))
        raise SettingsError(f"--signature {name} is not a signature for predict; the model has {there}.")
    return [predicting[name]]


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
