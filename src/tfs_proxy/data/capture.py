"""Lines of data capture: a request and its answer as SageMaker writes them, and back."""

import re
import time
from collections.abc import Mapping
from uuid import uuid4

import orjson
import pybase64
from msgspec import Struct

from tfs_proxy.values.errors import BadInput, UnsupportedMediaType
from tfs_proxy.wire import media_types as media

ENDING = ".jsonl"
BEGINNING_BYTES = 64
"""Ending of a file's name, and bytes of the file that show its kind."""

_BEGINNING = re.compile(rb'\s*\{\s*"(captureData|eventMetadata|eventVersion)"')
_BASE64 = "BASE64"
_TEXT_ENCODINGS: Mapping[str, str] = {
    **dict.fromkeys((media.CSV, "application/csv"), "CSV"),
    **dict.fromkeys((media.JSON, media.JSON_LINES, media.JSONS, "application/x-jsonlines"), "JSON"),
}
"""Media types whose bodies are kept as text if they are UTF-8; SageMaker's defaults are among them."""


class CapturedRequest(Struct, frozen=True):
    """Request of a client: headers are None if it sent none."""

    body: bytes
    content_type: str | None
    custom_attributes: str | None


def line_of(
    request: CapturedRequest, answer: bytes, answer_type: str | None, inference_id: str | None
) -> bytes:
    """Write a request, whose answer is ready, as a line with its end; ``inference_id`` is the client's."""
    metadata: dict[str, object] = {"eventId": str(uuid4())}
    if request.custom_attributes is not None:
        metadata["customAttributes"] = [request.custom_attributes]
    if inference_id is not None:
        metadata["inferenceId"] = inference_id
    metadata["inferenceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sides = {
        "endpointInput": _side("INPUT", request.content_type or "", request.body),
        "endpointOutput": _side("OUTPUT", answer_type or "", answer),
    }
    document = {"captureData": sides, "eventMetadata": metadata, "eventVersion": "0"}
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def is_capture(name: str, beginning: bytes) -> bool:
    """True if a file of this name and beginning is one of data capture, SageMaker's or ours."""
    return name.endswith(ENDING) and _BEGINNING.match(beginning) is not None


def captured_request(line: bytes) -> CapturedRequest | None:
    """Read the request in a line with its end; raises BadInput.

    None for a last line, one without an end, that can't be read: its writer was killed.
    """
    try:
        document = orjson.loads(line)
        sent = document["captureData"]["endpointInput"]
        metadata = document["eventMetadata"]
        text = sent["data"]
        is_packed = sent["encoding"] == _BASE64
        body = pybase64.b64decode(text, validate=True) if is_packed else text.encode()
        attributes = ",".join(metadata.get("customAttributes") or ()) or None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if not line.endswith(b"\n"):
            return None
        place = "it has no captured request, which is in captureData.endpointInput"
        raise BadInput(f"{place} ({type(error).__name__}: {error})") from None
    return CapturedRequest(body, sent.get("observedContentType") or None, attributes)


def _side(mode: str, content_type: str, body: bytes) -> dict[str, str]:
    try:
        encoding = _TEXT_ENCODINGS[media.parse(content_type).type]
        text = body.decode()
    except (KeyError, UnicodeDecodeError, UnsupportedMediaType):
        encoding = _BASE64
        text = pybase64.b64encode(body).decode()
    return {"observedContentType": content_type, "mode": mode, "data": text, "encoding": encoding}
