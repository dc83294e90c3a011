"""The file that says what a container takes."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tfs_proxy.cli import schema_text
from tfs_proxy.conform.requests_file import KnownRequest, KnownRequests, read_requests_file
from tfs_proxy.conform.target import Capability
from tfs_proxy.errors import SettingsError

GOOD = {"content_type": "application/json", "body": {"instances": [1.0]}}
SCHEMA = json.loads(schema_text("conform-requests"))


def written(folder: Path, document: object) -> Path:
    file = folder / "requests.json"
    file.write_text(json.dumps(document))
    return file


def test_everything_that_the_file_can_say(tmp_path: Path) -> None:
    """Bodies are text, JSON or files; the schema takes what the reader takes."""
    (tmp_path / "rows.csv").write_bytes(b"1\n2\n")
    document: dict[str, Any] = {
        "good": {**GOOD, "accept": "application/json", "expected_content_type": "application/json"},
        "bad": {"content_type": "application/json", "body": "{"},
        "records": {"content_type": "text/csv; charset=utf-8", "file": "rows.csv"},
        "capabilities": ["multi-model", "websocket"],
        "metrics_path": "/prometheus",
    }
    jsonschema.validate(document, SCHEMA)

    known = read_requests_file(written(tmp_path, document))

    assert known == KnownRequests(
        good=KnownRequest(
            "application/json", b'{"instances": [1.0]}', "application/json", "application/json"
        ),
        bad=KnownRequest("application/json", b"{"),
        records=KnownRequest("text/csv; charset=utf-8", b"1\n2\n"),
        capabilities=frozenset({Capability.MULTI_MODEL, Capability.WEBSOCKET}),
        metrics_path="/prometheus",
    )
    assert known.records
    assert known.records.media_type == "text/csv"


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ([], "must be a JSON object"),
        ({"god": GOOD}, "has 'god', which is not one of bad, capabilities, good"),
        ({"good": {"body": "x"}}, "good has no content_type"),
        ({"good": {"content_type": "a/b"}}, "good must have either body or file"),
        ({"good": {**GOOD, "file": "x"}}, "good must have either body or file"),
        ({"good": {"content_type": "a/b", "file": "none"}}, "none can't be read: No such file"),
        ({"good": {**GOOD, "accept": "a\nb: c"}}, "good.accept must be a string of one line"),
        ({"good": {**GOOD, "accept": 1}}, "good.accept must be a string of one line"),
        ({"good": {**GOOD, "typo": "x"}}, "good has 'typo'"),
        ({"capabilities": ["flying"]}, "capabilities must be a list with any of multi-model, pipeline"),
        ({"metrics_path": "metrics"}, "metrics_path must be a path that begins with /"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, document: object, sentence: str) -> None:
    """With the file and the field."""
    with pytest.raises(SettingsError, match=r"requests.json") as raised:
        read_requests_file(written(tmp_path, document))

    assert sentence in str(raised.value) or sentence in str(raised.value).replace(str(tmp_path) + "/", "")


def test_what_is_not_json(tmp_path: Path) -> None:
    """Also nesting that no parser follows."""
    file = tmp_path / "requests.json"
    for text in ("{", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(SettingsError, match=r"requests.json is not JSON"):
            read_requests_file(file)
    with pytest.raises(SettingsError, match="can't be read: No such file"):
        read_requests_file(tmp_path / "none.json")
