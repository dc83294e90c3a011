"""Encodes messages of application/vnd.amazon.eventstream: the parts and errors that `stream` answers with.

The format, from the AWS SDKs' description of it: a prelude (length of the message, length of the headers,
CRC32 of both), the headers, the payload, and the CRC32 of all before. Numbers are big-endian.
"""

import json
import struct
import zlib
from collections.abc import Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_LENGTHS = struct.Struct(">II")
_CHECKSUM = struct.Struct(">I")
_TEXT_LENGTH = struct.Struct(">BH")
_TEXT = 7
"""The type of a header whose value is a string."""

_FRAME_BYTES = _LENGTHS.size + 2 * _CHECKSUM.size
_MOST_NAME_BYTES, _MOST_VALUE_BYTES = 255, 32767

TIME_EXCEEDED, STREAM_BROKEN = "ModelInvocationTimeExceeded", "StreamBroken"
"""The error codes of ModelStreamError (botocore's model of InvokeEndpointWithResponseStream)."""


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message with string headers; raises ValueError for a name or value that the format can't hold."""
    fields = b"".join(_header(name, value) for name, value in headers.items())
    lengths = _LENGTHS.pack(_FRAME_BYTES + len(fields) + len(payload), len(fields))
    prelude = lengths + _CHECKSUM.pack(zlib.crc32(lengths))
    content = b"".join((prelude, fields, payload))
    return content + _CHECKSUM.pack(zlib.crc32(content))


def payload_part(data: bytes) -> bytes:
    """A PayloadPart: some bytes of the container's answer."""
    headers = {
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
        ":message-type": "event",
    }
    return message(headers, data)


def model_stream_error(code: str, text: str) -> bytes:
    """The container did not finish its answer; ``code`` is `TIME_EXCEEDED` or `STREAM_BROKEN`."""
    return _exception("ModelStreamError", {"Message": text, "ErrorCode": code})


def internal_stream_failure(text: str) -> bytes:
    """The endpoint itself could not finish the answer."""
    return _exception("InternalStreamFailure", {"Message": text})


def _exception(kind: str, members: Mapping[str, str]) -> bytes:
    headers = {
        ":exception-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return message(headers, json.dumps(members).encode())


def _header(name: str, value: str) -> bytes:
    encoded_name, encoded_value = name.encode(), value.encode()
    if not 0 < len(encoded_name) <= _MOST_NAME_BYTES:
        raise ValueError(f"a header's name has 1 to {_MOST_NAME_BYTES} bytes, not {len(encoded_name)}")
    if len(encoded_value) > _MOST_VALUE_BYTES:
        raise ValueError(f"the header {name} has {len(encoded_value)} bytes, over {_MOST_VALUE_BYTES}")
    length = bytes((len(encoded_name),))
    return length + encoded_name + _TEXT_LENGTH.pack(_TEXT, len(encoded_value)) + encoded_value
