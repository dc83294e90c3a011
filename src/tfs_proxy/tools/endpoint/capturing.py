"""Data capture of an endpoint by its DataCaptureConfig: requests to each variant, and their answers."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tfs_proxy.data.capture.files import CaptureOutcome, Counts, check_folder, described, is_chosen
from tfs_proxy.data.capture.record import CSV, JSON, TEXT_ENCODINGS, Payload
from tfs_proxy.data.capture.writer import CaptureWriter
from tfs_proxy.tools.endpoint.delivery import address_of
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.s3_client import S3_SCHEME

log = logging.getLogger(__name__)

MEMBER = "DataCaptureConfig"
FILE_BYTES = 16 * MEGABYTE
BOTH = "InputAndOutput"


class EndpointCapture:
    """Records of each variant of ``endpoint``, from `start` to `close`; none if the config asks for none.

    ``parameters`` are those of CreateEndpointConfig; relative paths in them start from ``folder``.
    Raises SettingsError for a destination that can't be used.
    """

    def __init__(
        self, endpoint: str, variants: list[str], parameters: Mapping[str, Any], folder: Path
    ) -> None:
        self._counts: Counter[CaptureOutcome] = Counter()
        asked = parameters.get(MEMBER, {})
        encodings = _encodings(asked.get("CaptureContentTypeHeader", {}))
        self._options = {
            variant: _options(endpoint, variant, asked, folder)
            for variant in variants
            if asked and asked.get("EnableCapture", True)
        }
        self._writers = {
            variant: CaptureWriter(options, self._count, encodings=encodings)
            for variant, options in self._options.items()
        }

    def start(self) -> None:
        """Raises SettingsError if the destination can't be written."""
        for variant, writer in self._writers.items():
            check_folder(self._options[variant])
            writer.start()
            log.info("%s", described(self._options[variant]))

    def add(
        self, variant: str, body: bytes, header: Callable[[str], str | None], response: HttpResponse
    ) -> None:
        """Records a sampled request and its answer; ``header`` returns the request's headers."""
        writer = self._writers.get(variant)
        if writer is None or response.status >= HTTPStatus.BAD_REQUEST:
            return
        if is_chosen(self._options[variant]):
            sent = Payload(header("Content-Type") or "", body)
            answered = Payload(response.header("Content-Type") or "", response.body)
            writer.add(sent, answered, header)

    def close(self) -> Counts:
        for writer in self._writers.values():
            writer.close()
        return self._counts

    def _count(self, counts: Counts) -> None:
        self._counts.update(counts)


def destination_of(parameters: Mapping[str, Any], folder: Path) -> str | None:
    """The ``s3://`` address or folder of DataCaptureConfig; None without one. Raises SettingsError."""
    if MEMBER not in parameters:
        return None
    target = address_of("DestinationS3Uri", parameters[MEMBER]["DestinationS3Uri"], folder)
    return target if target.startswith(S3_SCHEME) else unquote(urlsplit(target).path)


def _options(endpoint: str, variant: str, asked: Mapping[str, Any], folder: Path) -> CaptureOptions:
    modes = {option["CaptureMode"] for option in asked["CaptureOptions"]}
    return CaptureOptions(
        destination_of({MEMBER: asked}, folder) or "",
        endpoint,
        asked["InitialSamplingPercentage"],
        FILE_BYTES,
        keeps_input=bool(modes & {"Input", BOTH}),
        keeps_output=bool(modes & {"Output", BOTH}),
        variant=variant,
    )


def _encodings(types: Mapping[str, Any]) -> Mapping[str, str]:
    """Types kept as text: those of CaptureContentTypeHeader, or the usual ones."""
    if not types:
        return TEXT_ENCODINGS
    named = {CSV: types.get("CsvContentTypes", ()), JSON: types.get("JsonContentTypes", ())}
    return {name.lower(): encoding for encoding, names in named.items() for name in names}
