"""One captured request as SageMaker's data capture writes it: a line of JSON (docs/how-to/capture.md)."""

import binascii
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import orjson
import pybase64
from msgspec import Struct, field

from tfs_proxy.values.errors import BadInput, UnsupportedMediaType
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.packed_body import decoded_body

INPUT, OUTPUT = "endpointInput", "endpointOutput"
VERSION = "0"
_MODES: Mapping[str, str] = {INPUT: "INPUT", OUTPUT: "OUTPUT"}
CSV, JSON, _BASE64 = "CSV", "JSON", "BASE64"
TEXT_ENCODINGS: Mapping[str, str] = {
    media.CSV: CSV,
    "application/csv": CSV,
    media.JSON: JSON,
    media.JSON_LINES: JSON,
    media.JSONS: JSON,
    "application/x-jsonlines": JSON,
}
"""Media types whose bodies are kept as text if they are UTF-8; SageMaker's defaults are among them."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Payload(Struct, frozen=True):
    """A body and its Content-Type, "" if there was none; ``encoding`` is the body's Content-Encoding."""

    content_type: str
    body: bytes
    encoding: str = ""

    def unpacked(self, limit_bytes: int) -> "Payload":
        """Decode the body; it stays as it is if it can't be read. Raises PayloadTooLarge."""
        try:
            return Payload(self.content_type, decoded_body(self.body, self.encoding, limit_bytes))
        except (BadInput, UnsupportedMediaType):
            return self


class CaptureRecord(Struct, frozen=True):
    """A request and its answer, each None if it is not kept; ``seconds`` is the time since the epoch.

    ``inference_id`` and ``custom_attributes`` are the client's headers, None if it sent none.
    """

    input: Payload | None
    output: Payload | None
    seconds: float
    inference_id: str | None = None
    custom_attributes: str | None = None
    event_id: str = field(default_factory=lambda: str(uuid4()))


def line_of(record: CaptureRecord, encodings: Mapping[str, str] = TEXT_ENCODINGS) -> bytes:
    """Write the record as a line, with its end; ``encodings`` names the media types to keep as text."""
    payloads = {INPUT: record.input, OUTPUT: record.output}
    data = {
        name: _data(name, payload, encodings) for name, payload in payloads.items() if payload is not None
    }
    metadata: dict[str, Any] = {"eventId": record.event_id}
    if record.custom_attributes is not None:
        metadata["customAttributes"] = [record.custom_attributes]
    if record.inference_id is not None:
        metadata["inferenceId"] = record.inference_id
    metadata["inferenceTime"] = time.strftime(_TIME, time.gmtime(record.seconds))
    document = {"captureData": data, "eventMetadata": metadata, "eventVersion": VERSION}
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def is_record(document: object) -> bool:
    """True if a JSON document looks like a record."""
    return isinstance(document, dict) and {"captureData", "eventMetadata"} <= document.keys()


def read_line(line: bytes) -> CaptureRecord:
    """Read a line of `line_of` or of SageMaker's; raises BadInput."""
    try:
        document = orjson.loads(line)
    except ValueError:
        raise BadInput("it is not JSON") from None
    if not is_record(document):
        raise BadInput("it has no captureData and eventMetadata")
    try:
        return _read(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"it is not a record of data capture: {error}") from None


def _read(document: dict[str, Any]) -> CaptureRecord:
    data, metadata = document["captureData"], document["eventMetadata"]
    attributes = metadata.get("customAttributes")
    return CaptureRecord(
        _payload(data.get(INPUT)),
        _payload(data.get(OUTPUT)),
        0.0,
        metadata.get("inferenceId"),
        ",".join(attributes) if attributes else None,
        str(metadata.get("eventId", "")),
    )


def _data(name: str, payload: Payload, encodings: Mapping[str, str]) -> dict[str, str]:
    encoding, text = _encoded(payload, encodings)
    kind = {"observedContentType": payload.content_type, "mode": _MODES[name]}
    return {**kind, "data": text, "encoding": encoding}


def _encoded(payload: Payload, encodings: Mapping[str, str]) -> tuple[str, str]:
    try:
        encoding = encodings.get(media.parse(payload.content_type).type, _BASE64)
        if encoding != _BASE64:
            return encoding, payload.body.decode()
    except (UnicodeDecodeError, UnsupportedMediaType):
        pass
    return _BASE64, pybase64.b64encode(payload.body).decode()


def _payload(data: Any) -> Payload | None:
    if data is None:
        return None
    text, encoding = data["data"], data["encoding"]
    try:
        body = pybase64.b64decode(text, validate=True) if encoding == _BASE64 else text.encode()
    except binascii.Error as error:
        raise ValueError(f"its data are not base64 ({error})") from error
    return Payload(str(data.get("observedContentType") or ""), body)


log = logging.getLogger(__name__)

ENDING = ".jsonl"
BEGINNING_BYTES = 64
"""Bytes of a file that show its kind."""

_BEGINNING = re.compile(rb'\s*\{\s*"(captureData|eventMetadata|eventVersion)"')


class CapturedRequest(Struct, frozen=True):
    """Request of a client: headers are None if it sent none."""

    body: bytes
    content_type: str | None
    custom_attributes: str | None


def is_capture(name: str, beginning: bytes) -> bool:
    """True if a file of this name and beginning is one of data capture, SageMaker's or ours."""
    return name.endswith(ENDING) and _BEGINNING.match(beginning) is not None


def captured_request(line: bytes) -> CapturedRequest:
    """Read the request in a line; raises BadInput."""
    record = read_line(line)
    if record.input is None:
        raise BadInput(f"it has no {INPUT}: only answers were captured")
    return CapturedRequest(record.input.body, record.input.content_type or None, record.custom_attributes)


def captured_requests(lines: Iterable[bytes], name: str) -> Iterator[CapturedRequest]:
    """Read the requests of a file from its lines with their ends; raises BadInput that names the line.

    A last line without its end is left out if it can't be read: its writer was killed.
    """
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            request = captured_request(line)
        except BadInput as error:
            if not line.endswith(b"\n"):
                log.warning("the last line of %s is not whole and is left out", name)
                return
            raise BadInput(f"{name}, line {number}: {error}") from error
        yield request
