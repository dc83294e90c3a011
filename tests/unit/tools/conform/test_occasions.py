"""How a container is started: variables and folders as SageMaker sets them; bodies that are made long."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tfs_proxy.cli import schema_text
from tfs_proxy.tools.conform.check import NotRun, Occasion
from tfs_proxy.tools.conform.judging import BAD_BODIES, GOOD_BODIES, find_bad, find_good
from tfs_proxy.tools.conform.occasions import environment_of_100, pipeline_order, snapshot, start_order
from tfs_proxy.tools.conform.raw_http import NoReply, RawReply
from tfs_proxy.tools.conform.requests_file import KnownRequest, KnownRequests, padded, read_requests_file
from tfs_proxy.tools.conform.target import Capability, of_labels
from tfs_proxy.values.errors import SettingsError

NOTHING: frozenset[Capability] = frozenset()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").write_bytes(b"model")
    return folder


def test_the_largest_environment() -> None:
    env = environment_of_100()
    total = sum(len(name) + len(value) for name, value in env.items())

    assert len(env) == 100
    assert max(map(len, [*env, *env.values()])) == 1024
    assert 32_000 < total <= 32 * 1024


@pytest.mark.parametrize("port", [8080, 65_530])
def test_the_safe_range_is_beside_the_port(port: int) -> None:
    low, high = map(int, pipeline_order(port).env["SAGEMAKER_SAFE_PORT_RANGE"].split("-"))

    assert 0 < low < high < 65_536
    assert not low <= port <= high


def test_a_read_only_folder_is_a_copy(model: Path) -> None:
    with ExitStack() as folders:
        order = start_order(Occasion.READ_ONLY, model, NOTHING, folders)
        assert order.model
        assert order.model != model
        assert (order.model / "1" / "saved_model.pb").stat().st_mode & 0o777 == 0o444
        assert set(snapshot(order.model)) == set(snapshot(model)) == {"1", "1/saved_model.pb"}

    assert not order.model.exists()
    assert os.access(model / "1", os.W_OK)


@pytest.mark.parametrize("occasion", [Occasion.PIPELINE, Occasion.MULTI_MODEL])
def test_what_a_container_does_not_say_is_not_judged(occasion: Occasion, model: Path) -> None:
    with ExitStack() as folders, pytest.raises(NotRun, match=r"--.*com.amazonaws.sagemaker.capabilities"):
        start_order(occasion, model, NOTHING, folders)


def test_labels() -> None:
    labels = {Capability.PIPELINE.label: "true", Capability.MULTI_MODEL.label: "false", "other": "true"}

    assert of_labels(labels) == {Capability.PIPELINE}


def test_json_is_padded_without_another_meaning() -> None:
    body, is_same = padded(KnownRequest("application/json; charset=utf-8", b"[1]"), 100)

    assert (len(body), body.strip(), body[-3:], is_same) == (100, b"[1]", b"[1]", True)


def test_other_bodies_are_repeated() -> None:
    body, is_same = padded(KnownRequest("text/csv", b"1,2\n"), 10)

    assert (body, is_same) == (b"1,2\n" * 3, False)
    assert padded(KnownRequest("text/csv", b""), 3) == (b"\n" * 4, False)


def answer(status: int) -> RawReply:
    return RawReply(status, (), b"", 0.0)


def test_one_that_takes_all_has_no_bad_request() -> None:
    assert find_bad(lambda _: answer(200)) is None
    assert find_good(lambda _: answer(500)) is None


def test_a_container_that_hangs_up_on_one_body_is_asked_on() -> None:
    asked: list[KnownRequest] = []

    def hangs_up(request: KnownRequest) -> RawReply:
        asked.append(request)
        if request.content_type == "application/json":
            raise NoReply("closed")
        return answer(415)

    assert find_bad(hangs_up) == KnownRequest(*BAD_BODIES[1])
    asked.clear()
    assert find_good(hangs_up) is None
    assert len(asked) == 2 < len(GOOD_BODIES)


GOOD = {"content_type": "application/json", "body": {"instances": [1.0]}}
SCHEMA = json.loads(schema_text("conform-requests"))


def written(folder: Path, document: object) -> Path:
    file = folder / "requests.json"
    file.write_text(json.dumps(document))
    return file


def test_everything_that_the_file_can_say(tmp_path: Path) -> None:
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
    with pytest.raises(SettingsError, match=r"requests.json") as raised:
        read_requests_file(written(tmp_path, document))

    assert sentence in str(raised.value) or sentence in str(raised.value).replace(str(tmp_path) + "/", "")


def test_what_is_not_json(tmp_path: Path) -> None:
    file = tmp_path / "requests.json"
    for text in ("{", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(SettingsError, match=r"requests.json is not JSON"):
            read_requests_file(file)
    with pytest.raises(SettingsError, match="can't be read: No such file"):
        read_requests_file(tmp_path / "none.json")
