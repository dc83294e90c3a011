"""Data capture of an endpoint: the records of its DataCaptureConfig, as files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.tools.endpoint.capturing import EndpointCapture
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.http_messages import HttpResponse

HEADERS = {"Content-Type": "text/csv", "X-Amzn-SageMaker-Inference-Id": "seven"}
ANSWER = HttpResponse(200, b'{"y": 1}', {"Content-Type": "application/json"})
ALL = [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}]


def captured(folder: Path, *answers: HttpResponse, **config: Any) -> dict[str, list[Any]]:
    """The records by folder, after a request for each answer to the variant ``blue``."""
    asked = {
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": "captured",
        "CaptureOptions": ALL,
        **config,
    }
    capture = EndpointCapture("e", ["blue", "green"], {"DataCaptureConfig": asked}, folder)
    capture.start()
    for answer in answers:
        capture.add("blue", b"1,2", HEADERS.get, answer)
    capture.close()
    found: dict[str, list[Any]] = {}
    for path in (folder / "captured").rglob("*.jsonl"):
        place = path.parent.relative_to(folder / "captured").as_posix()
        found.setdefault(place, []).extend(json.loads(line) for line in path.read_text().splitlines())
    return found


def test_the_config_chooses_the_sides_and_the_text(tmp_path: Path) -> None:
    options = {
        "CaptureOptions": [{"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"]},
    }
    ((record,),) = captured(tmp_path, ANSWER, **options).values()
    assert list(record["captureData"]) == ["endpointOutput"]
    assert record["captureData"]["endpointOutput"]["encoding"] == "BASE64"


@pytest.mark.parametrize("config", [{"EnableCapture": False}, {"InitialSamplingPercentage": 0}])
def test_nothing_is_captured_unasked(tmp_path: Path, config: dict[str, Any]) -> None:
    assert captured(tmp_path, ANSWER, **config) == {}


def test_refusals_are_not_captured(tmp_path: Path) -> None:
    assert captured(tmp_path, HttpResponse(500, b"no")) == {}


def test_a_destination_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="take s3://"):
        captured(tmp_path, DestinationS3Uri="https://bucket/key")
