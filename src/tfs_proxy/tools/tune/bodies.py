"""The requests of a measurement: a client's, or one made from the signature."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tfs_proxy.data.capture.record import CapturedRequest
from tfs_proxy.model.graph_inputs import read_graph_inputs
from tfs_proxy.model.openapi.examples import PICTURES, example_bodies, sample_string
from tfs_proxy.model.report.served import Served
from tfs_proxy.model.saved_model import read_summary
from tfs_proxy.model.script_syntax import media_types_in, read_ast_names
from tfs_proxy.run.nginx.config import find as find_nginx
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.tune.axes import TunedModel
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.routes import INVOCATIONS

GIVE_REQUESTS = "give requests with --request FILE."


def made_request(served: Served) -> CapturedRequest:
    """A request with one record, of the first media type that fits. Raises SettingsError if none does."""
    bodies = dict(_bodies(served))
    ast_names = read_ast_names(served.layout.script)
    # A script may take pictures where its model takes numbers.
    known = {**PICTURES, **bodies} if ast_names is not None else bodies
    for media_type in (*media_types_in(ast_names.tree if ast_names else None), *bodies):
        if media_type in known:
            return CapturedRequest(known[media_type], media_type, None)
    raise SettingsError(f"No request can be made for {served.default_model}: {GIVE_REQUESTS}")


def whole_request(request: CapturedRequest, host: str) -> bytes:
    """The bytes of a POST to /invocations on a kept-alive connection. Raises SettingsError."""
    headers = {
        "Host": host,
        "Content-Type": request.content_type,
        CUSTOM_ATTRIBUTES: request.custom_attributes,
        "Content-Length": str(len(request.body)),
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    if any(not line.isprintable() or not line.isascii() for line in lines):
        raise SettingsError("The content type or the custom attributes of a request can't be a header.")
    return "\r\n".join([f"POST {INVOCATIONS.path} HTTP/1.1", *lines, "", ""]).encode() + request.body


def workload_of(served: Served, requests: Sequence[CapturedRequest], settings: Settings) -> TunedModel:
    """Finds out what answers these requests, and whether they can be batched."""
    signature = _signature(served)
    types = {media.parse(request.content_type).name for request in requests}
    has_nginx = settings.nginx and find_nginx() is not None
    return TunedModel(
        through_workers=served.script is not None or not has_nginx or types != {media.JSON},
        has_script=served.script is not None,
        batches=signature is not None and _has_open_batches(signature),
    )


def _bodies(served: Served) -> Iterator[tuple[str, bytes]]:
    signature, folder = _signature(served), _folder(served)
    if signature is None or folder is None:
        return
    string = sample_string(signature, read_graph_inputs(folder))
    if string is not None:
        yield from example_bodies(signature, string).items()


def _signature(served: Served) -> Signature | None:
    """The default signature of the default model's newest version."""
    folder = _folder(served)
    summary = read_summary(folder) if folder is not None else None
    return summary.signatures.get(DEFAULT_SIGNATURE) if summary is not None else None


def _folder(served: Served) -> Path | None:
    folder = served.graph_folders.get(served.default_model)
    return Path(folder) if folder is not None else None


def _has_open_batches(signature: Signature) -> bool:
    """True if each tensor has a first dimension of an open size, along which batching joins requests."""
    tensors = (*signature.inputs.values(), *signature.outputs.values())
    return all(spec.shape is not None and spec.shape[:1] == (None,) for spec in tensors)
