"""Requests that were captured are sent again: each with its own headers, by `tfs-proxy transform`."""

import json
from pathlib import Path

from support.archives import stand_in_archive, stand_in_program, without_nginx
from support.capturing import body_of, captured, captured_files
from support.stack import serving
from support.transform_command import outputs, transform

SCRIPT = """
import json


def handler(data, context):
    body = data.read().decode("latin-1")
    seen = [body, context.request_content_type, context.custom_attributes]
    return json.dumps(seen), "application/json"
"""


def test_captured_requests_are_sent_again(tmp_path: Path) -> None:
    """The answers are the captured ones, one after the other; what a killed worker left in the middle is not sent."""
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=SCRIPT)
    target, light = tmp_path / "capture", {"SAGEMAKER_GUNICORN_WORKERS": "1", **without_nginx()}
    words = ("--model-server", stand_in_program(tmp_path))
    with serving(str(archive), *words, env={"TFS_PROXY_CAPTURE": str(target), **light}) as stack:
        stack.invoke("1,2\n3,4\n", "text/csv")
        stack.invoke(b"\x00\xff", "image/jpeg", X_Amzn_SageMaker_Custom_Attributes="trace=1")
        stack.ask("POST", "/invocations", "[1]")
        stack.stop()
    *_, latest = captured_files(target)
    answers = [json.loads(body_of(record, "endpointOutput")) for record in captured(target)]
    latest.write_bytes(latest.read_bytes() + b'{"captureData":{"endp')

    place = ("--input", str(target), "--output", str(tmp_path / "out"))
    done = transform("--model", str(archive), *words, *place, env=light)

    assert (done.status, done.summary["records"]) == (0, 3)
    answered = b"".join(content for _, content in sorted(outputs(tmp_path / "out").items()))
    assert [json.loads(line) for line in answered.splitlines()] == answers
    assert ["\x00\xff", "image/jpeg", "trace=1"] in answers


LINE = b'{"captureData":{"endpointInput":{"data":"1","encoding":"CSV"}},"eventMetadata":{}}\n'


def test_a_job_that_says_how_to_read_its_input_reads_it_so(tmp_path: Path) -> None:
    """A model that takes records of data capture, such as a monitor, gets them as they are."""
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=SCRIPT)
    (tmp_path / "day.jsonl").write_bytes(LINE)
    words = ("--model", str(archive), "--model-server", stand_in_program(tmp_path), "--split-type", "Line")
    place = ("--input", str(tmp_path / "day.jsonl"), "--output", str(tmp_path / "out"))
    done = transform(*words, *place, env=without_nginx())
    (answered,) = outputs(tmp_path / "out").values()
    assert (done.status, json.loads(answered)[0]) == (0, LINE.decode())
