"""Records as lines, and back."""

import json
from pathlib import Path

import pytest

from tfs_proxy.data.capture.files import capture_options, is_chosen
from tfs_proxy.data.capture.record import CaptureRecord, Payload, line_of, read_line
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.values.errors import BadInput

NOON = 1_800_000_000.5


@pytest.mark.parametrize(
    ("content_type", "body", "encoding"),
    [
        ("text/csv", b"1,2\n", "CSV"),
        ("text/csv; charset=utf-8", "ü".encode(), "CSV"),
        ("text/csv", b"\xff", "BASE64"),
        ("application/json", b'{"a": 1}', "JSON"),
        ("Application/JSON; charset=utf-8", b"[1]", "JSON"),
        ("application/jsonlines", b"{}\n{}\n", "JSON"),
        ("", b"[1]", "JSON"),
        ("text/plain", b"a", "BASE64"),
        ("application/x-npy", b"\x93NUMPY", "BASE64"),
        ("not a type", b"a", "BASE64"),
        ("application/json", b"", "JSON"),
    ],
)
def test_a_body_comes_back_as_it_was(content_type: str, body: bytes, encoding: str) -> None:
    line = line_of(CaptureRecord(Payload(content_type, body), None, NOON))

    document = json.loads(line)
    assert document["captureData"]["endpointInput"]["encoding"] == encoding
    assert read_line(line).input == Payload(content_type, body)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_a_record_has_sagemakers_fields_in_its_order() -> None:
    """Model Monitor and other readers of SageMaker's files find what they look for."""
    record = CaptureRecord(
        Payload("text/csv", b"1"), Payload("application/json", b"[1]"), NOON, "id", "a=b", "event"
    )

    assert line_of(record) == (
        b'{"captureData":{"endpointInput":{"observedContentType":"text/csv","mode":"INPUT","data":"1",'
        b'"encoding":"CSV"},"endpointOutput":{"observedContentType":"application/json","mode":"OUTPUT",'
        b'"data":"[1]","encoding":"JSON"}},"eventMetadata":{"eventId":"event","customAttributes":["a=b"],'
        b'"inferenceId":"id","inferenceTime":"2027-01-15T08:00:00Z"},"eventVersion":"0"}\n'
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "no captureData"),
        (b'{"captureData": 1, "eventMetadata": {}}', "not a record"),
        (b'{"captureData": {"endpointInput": {}}, "eventMetadata": {}}', "not a record"),
        (b'{"captureData": {"endpointInput": {"data": 1, "encoding": "CSV"}}, "eventMetadata": {}}', "not"),
        (
            b'{"captureData": {"endpointInput": {"data": "=", "encoding": "BASE64"}}, "eventMetadata": {}}',
            "base64",
        ),
    ],
)
def test_what_is_not_a_record_is_refused(line: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_line(line)


def test_options_come_from_the_settings() -> None:
    """A folder is absolute, since workers may stand elsewhere; an address in S3 stays as it is."""
    env = {"TFS_PROXY_CAPTURE": "records", "TFS_PROXY_CAPTURE_PERCENT": "12.5"}
    more = {"TFS_PROXY_CAPTURE_MAX_MB": "2", "TFS_PROXY_CAPTURE_KEEP": "output"}

    assert capture_options(Settings.from_env({**env, **more}), "m") == CaptureOptions(
        str(Path.cwd() / "records"), "m", 12.5, 2 * 1024 * 1024, keeps_input=False
    )
    in_s3 = capture_options(Settings.from_env({"TFS_PROXY_CAPTURE": "s3://bucket"}), "m")
    assert in_s3 is not None
    assert (in_s3.target, in_s3.is_s3) == ("s3://bucket", True)


def test_the_share_is_that_of_the_percent() -> None:
    """All at 100, and half at 50."""
    all_of_them = CaptureOptions("a", "m", 100.0, 1)
    half = CaptureOptions("a", "m", 50.0, 1)

    assert is_chosen(all_of_them, lambda: 0.999)
    shares = iter((0.0, 0.49, 0.5, 0.99))
    assert [is_chosen(half, shares.__next__) for _ in range(4)] == [True, True, False, False]


def test_headers_and_ids_come_back() -> None:
    sent = read_line(line_of(CaptureRecord(None, Payload("", b""), NOON, "id", "a=b,c=d", "event")))
    plain = read_line(line_of(CaptureRecord(None, Payload("", b""), NOON)))

    assert (sent.inference_id, sent.custom_attributes, sent.event_id) == ("id", "a=b,c=d", "event")
    assert (plain.inference_id, plain.custom_attributes, plain.input) == (None, None, None)


@pytest.mark.parametrize(
    ("model", "name", "folder"),
    [
        ("m", None, "m"),
        ("m", "shop", "shop"),
        ("my model/é", None, "my_model__"),
        ("..", None, "model"),
        ("", None, "model"),
    ],
)
def test_the_folder_has_a_name_that_is_one(model: str, name: str | None, folder: str) -> None:
    env = {"TFS_PROXY_CAPTURE": "/records", **({"TFS_PROXY_CAPTURE_NAME": name} if name else {})}
    options = capture_options(Settings.from_env(env), model)

    assert options is not None
    assert options.name == folder
