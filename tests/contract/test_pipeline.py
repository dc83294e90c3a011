"""A pipeline of two stages behind one endpoint."""

import pytest

from contract.conftest import Check, Start
from contract.doors import Running

pytestmark = pytest.mark.tensorflow

CSV_TO_JSON = {"Accept": "application/json"}


@pytest.fixture
def running(stacks: Start) -> Running:
    """Numbers doubled by a script, then half_plus_two."""
    return stacks("pipeline")


def test_an_answer_of_one_stage_is_the_request_of_the_next(running: Running) -> None:
    """The caller's Accept is the last stage's; the answer's headers are the last one's."""
    answer = running.invoke("3.0\n", "text/csv", **CSV_TO_JSON)

    assert (answer.status, answer.json) == (200, {"predictions": [5.0]})
    assert "x-amzn-sagemaker-custom-attributes" not in answer.headers
    assert running.invoke("3.0\n", "text/csv", Accept="text/csv").body == b"5.0\n"


def test_times_of_stages(running: Running) -> None:
    """Server-Timing, if X-Tfs-Proxy-Timing asks for it."""
    timing = running.invoke("3.0\n", "text/csv", **{"X-Tfs-Proxy-Timing": "1"}).headers["server-timing"]

    assert [each.split(";")[0].strip() for each in timing.split(",")] == ["stage1", "stage2"]


@pytest.mark.parametrize(
    ("name", "attributes", "kind", "status"),
    [("first stage", "", "application/xml", 415), ("second stage", "tfs-model-name=nope", "text/csv", 404)],
)
def test_a_stage_that_fails_is_a_424(
    running: Running, recorded: Check, name: str, attributes: str, kind: str, status: int
) -> None:
    """With the stage, its status and its words."""
    answer = running.invoke("1\n", kind, **{"X-Amzn-SageMaker-Custom-Attributes": attributes})

    assert answer.status == 424
    assert answer.json["OriginalStatusCode"] == status
    assert answer.json["OriginalMessage"] in answer.json["error"]
    assert set(answer.json) == {"error", "OriginalStatusCode", "OriginalMessage"}
    recorded("refusals", f"pipeline: {name}", [answer.status, answer.first_words])


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/ping", 200), ("GET", "/nope", 404), ("GET", "/invocations", 405)]
)
def test_other_paths(running: Running, method: str, path: str, status: int) -> None:
    """As of one archive."""
    assert running.ask(method, path).status == status
