"""Objects of data capture as input: each record is one request, with the headers that it had."""

from array import array
from collections.abc import Iterator
from typing import IO

from tfs_proxy.capture.record import BEGINNING_BYTES, CapturedRequest, captured_request, is_capture
from tfs_proxy.errors import BadInput
from tfs_proxy.payload.formats.framing import Frame
from tfs_proxy.transform.failures import BadRecord, ObjectFailed
from tfs_proxy.transform.job import NONE, Job
from tfs_proxy.transform.records.batches import MiniBatch
from tfs_proxy.transform.records.split import lines
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES


def may_be_captured(job: Job, name: str) -> bool:
    """Whether the job leaves open how an object of this name is to be read; its content decides then."""
    return job.content_type is None and job.split_type == NONE and is_capture(name, b'{"captureData"')


def is_captured(name: str, stream: "IO[bytes]") -> bool:
    """Whether the object is one of data capture; reads its beginning."""
    return is_capture(name, stream.read(BEGINNING_BYTES))


def captured_batches(stream: "IO[bytes]", max_bytes: int | None, name: str) -> Iterator[MiniBatch]:
    """Each request of the object ``name``; raises ObjectFailed with the position of one that is damaged."""
    for number, frame in enumerate(lines(stream), 1):
        request = _request(frame, number, name)
        if request is None:
            return
        if max_bytes is not None and len(request.body) > max_bytes:
            text = f"it has {len(request.body)} bytes to send: raise MaxPayloadInMB, which allows {max_bytes}"
            raise ObjectFailed(BadRecord(name, number, frame.offset, None, text))
        headers = {"Content-Type": request.content_type, CUSTOM_ATTRIBUTES: request.custom_attributes}
        yield MiniBatch(
            number,
            request.body,
            array("Q", [frame.offset]),
            array("Q", [len(request.body)]),
            {header: value for header, value in headers.items() if value is not None},
        )


def _request(frame: Frame, number: int, name: str) -> CapturedRequest | None:
    """The request of a line; None for a last line whose writer was killed."""
    try:
        return captured_request(bytes(frame.payload))
    except BadInput as error:
        if not bytes(frame.framed).endswith(b"\n"):
            return None
        raise ObjectFailed(BadRecord(name, number, frame.offset, None, str(error))) from error
