"""The requests of one version: made from its signatures, or a client's, as the model server gets them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy import protos
from tfs_proxy.archive.graphs.graph_inputs import read_graph_inputs
from tfs_proxy.batch import Batch
from tfs_proxy.capture.replay import CapturedRequest
from tfs_proxy.errors import SettingsError
from tfs_proxy.packing.warmup.options import WarmupOptions
from tfs_proxy.packing.warmup.sample_batches import sample_batches
from tfs_proxy.payload.formats.framing import tfrecord_frame
from tfs_proxy.report.served import Served
from tfs_proxy.settings import Settings
from tfs_proxy.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, Target
from tfs_proxy.upstream.binary import request_message

MOST_RECORDS = 1000
"""More than that keep a version from loading (docs/reference/tensorflow-serving.md)."""

FIRST_ERROR = 400


class RecordedRequest(Struct, frozen=True):
    """One request to a model server; ``origin`` names it in errors."""

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
    """A request of each size for each signature; raises SettingsError if none can be made."""
    graph = read_graph_inputs(folder)
    for signature in _chosen(signatures, options.signature):
        named = replace(target, signature=signature.name)
        for size, batch in zip(sizes, sample_batches(signature, graph, options, sizes), strict=True):
            yield RecordedRequest(named, batch, f"the request made for {signature.name}, batch size {size},")


def _chosen(signatures: Mapping[str, Signature], name: str | None) -> Sequence[Signature]:
    """The signatures of predict that requests are made for; raises SettingsError if there are none."""
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
    """What the model server is asked for a client's requests, behind the archive's own script if it has one.

    Raises SettingsError for a request that is refused, and ScriptLoadError for the script.
    """
    from tfs_proxy import testing

    with testing.load(served.layout.root, settings=settings) as script:
        for number, request in enumerate(requests, 1):
            earlier = len(script.calls)
            reply = script.post(
                request.body, request.content_type, custom_attributes=request.custom_attributes
            )
            if reply.status >= FIRST_ERROR:
                raise SettingsError(f"Request {number} is refused with {reply.status}: {reply.text}")
            for call in script.calls[earlier:]:
                yield RecordedRequest(call.target, Batch(call.inputs, 1), f"request {number}")


def file_of(requests: Sequence[RecordedRequest], signatures: Mapping[str, Signature]) -> bytes:
    """The requests as a model server reads them: TFRecords of PredictionLog; raises SettingsError."""
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
