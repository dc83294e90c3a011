"""`mlserver infer`, unchanged, sends a file of requests to a real stack and writes the answers to another."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.judges import judge
from support.stack import Stack

pytestmark = pytest.mark.tensorflow
Infer = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def infer(several: Stack, tmp_path: Path) -> Infer:
    """Sends requests, and gives the lines that it has written, in the order of the requests."""

    def sent(model: str, requests: Sequence[Mapping[str, Any]], *words: str) -> list[dict[str, Any]]:
        asked, answered = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
        asked.write_text("".join(f"{json.dumps(request)}\n" for request in requests))
        where = ("-u", f"{several.host}:{several.port}", "-m", model, "-i", str(asked), "-o", str(answered))
        judge("mlserver").run("mlserver", "infer", *where, *words)
        lines = [json.loads(line) for line in answered.read_text().splitlines()]
        return sorted(lines, key=lambda line: int(line["parameters"]["batch_index"]))

    return sent


def of_floats(*numbers: float) -> dict[str, Any]:
    tensor = {"name": "x", "shape": [len(numbers)], "datatype": "FP32", "data": list(numbers)}
    return {"inputs": [tensor]}


@pytest.mark.parametrize(
    "words",
    [
        ("--batch-size", "3"),
        *(
            pytest.param(words, marks=pytest.mark.long)
            for words in [(), ("--binary-data",), ("--workers", "3")]
        ),
    ],
    ids=lambda words: " ".join(words) or "json",
)
def test_it_infers_each_line(infer: Infer, words: tuple[str, ...]) -> None:
    """One answer a line, whether lines travel as JSON, as binary data, several in one request, or side by side."""
    requests = [of_floats(float(number), number + 1.0) for number in range(8)]

    answers = infer("half_plus_two", requests, *words)

    assert [answer["outputs"][0]["data"] for answer in answers] == [
        [0.5 * number + 2.0, 0.5 * number + 2.5] for number in range(8)
    ]
    assert {answer["model_name"] for answer in answers} == {"half_plus_two"}


def test_it_writes_the_error_of_a_line(infer: Infer) -> None:
    """A line that the model can't take becomes a line with the server's sentence; the others are answered."""
    wrong = {"inputs": [{"name": "other", "shape": [1], "datatype": "FP32", "data": [1.0]}]}

    first, second = infer("half_plus_two", [of_floats(2.0), wrong], "--retries", "1")

    assert first["outputs"][0]["data"] == [3.0]
    assert '"other"' in second["error"]["msg"]
