"""The protocol's bodies in HTTP: the size of the JSON before binary data, and how an answer goes out."""

import falcon

from tfs_proxy.errors import BadInput, RequestError, from_client
from tfs_proxy.open_inference.datatypes import JSON_SIZE, TRITON_TYPE
from tfs_proxy.payload.media_types import parse
from tfs_proxy.wire.header_names import INFERENCE_HEADER_LENGTH
from tfs_proxy.wire.packed_body import packed

_MOST_DIGITS = 18


def json_size(req: falcon.Request) -> int | None:
    """How many bytes of the body are JSON, by its header or by Triton's media type; None means all of them.

    Raises BadInput for what is not a number.
    """
    header = req.get_header(INFERENCE_HEADER_LENGTH)
    if header is not None:
        return _size(header, INFERENCE_HEADER_LENGTH)
    content_type = req.content_type
    return None if content_type is None or not is_triton_type(content_type) else json_size_in(content_type)


def is_triton_type(content_type: str | None) -> bool:
    """Whether a Content-Type is Triton's for SageMaker."""
    return content_type is not None and content_type.lower().startswith(TRITON_TYPE)


def json_size_in(content_type: str) -> int | None:
    """What Triton's media type says of the JSON's size; raises BadInput if it is not a number."""
    try:
        size = parse(content_type).parameters.get(JSON_SIZE)
    except RequestError as error:
        raise BadInput(from_client(error)) from None
    return None if size is None else _size(size, JSON_SIZE)


def write(
    req: falcon.Request, resp: falcon.Response, body: bytes, content_type: str, size: int | None
) -> None:
    """Answer with a body of which ``size`` bytes are JSON, packed if the client takes that."""
    resp.data, encoding = packed(body, req.get_header("Accept-Encoding"))
    resp.content_type = content_type
    if encoding is not None:
        resp.set_header("Content-Encoding", encoding)
    if size is not None:
        resp.set_header(INFERENCE_HEADER_LENGTH, str(size))


def _size(text: str, subject: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise BadInput(f"{subject} must be a whole number of bytes, not {from_client(text[:40])}.")
    return int(text)
