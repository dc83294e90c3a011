"""The abalone pipeline that the README of its example builds, checked against the relation of its data."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from support.building import EXAMPLES, ROOT, alone_in
from support.loading import load_module
from support.running import Answer
from support.stack import Stack

EXAMPLE = EXAMPLES / "abalone_pipeline"
BUILD = EXAMPLE / "build"
SOURCES = ("data.py", "featurizer.py", "regressor.py", "inference.py")
BUILD_SECONDS = 600

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(BUILD_SECONDS + 120)]


@pytest.fixture(scope="module")
def build() -> Path:
    """What the README's commands leave; they are run where nobody has run them yet."""
    with alone_in(EXAMPLE):
        archive = BUILD / "regressor.tar.gz"
        newest = max((EXAMPLE / name).stat().st_mtime for name in SOURCES)
        if not (archive.exists() and archive.stat().st_mtime > newest):
            words = [sys.executable, str(ROOT / "scripts" / "run_examples.py"), EXAMPLE.name]
            done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return BUILD


@pytest.fixture(scope="module")
def running(build: Path) -> Iterator[Stack]:
    """The README's pipeline, on a port of its own."""
    archives = (str(build / "featurizer.tar.gz"), str(build / "regressor.tar.gz"))
    program = ("--env", "1:SAGEMAKER_PROGRAM=featurizer.py")
    stack = Stack(*archives, *program, env={"SAGEMAKER_GUNICORN_WORKERS": "1"})
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.close()


@pytest.fixture(scope="module")
def data() -> ModuleType:
    """The program that knows the relation."""
    return load_module(EXAMPLE / "data.py")


def ask(stack: Stack, rows: str) -> Answer:
    """What the seed's client asks: CSV in, JSON out."""
    return stack.invoke(rows, "text/csv", Accept="application/json")


def test_the_answers_follow_the_relation_of_the_data(running: Stack, data: ModuleType) -> None:
    """Abalones that were not trained on, many in a request, each within a sixth of a ring."""
    table = data.abalones(200, np.random.default_rng(7)).round(4)

    answer = ask(running, table.to_csv(header=False, index=False))

    assert answer.status == 200
    scores = [prediction["score"] for prediction in answer.json["predictions"]]
    np.testing.assert_allclose(scores, table.apply(data.rings, axis=1), atol=0.15)


def test_labelled_rows_come_back_with_the_label_first(build: Path, data: ModuleType) -> None:
    """In the batch transform of the training data, row for row, beside ten features."""
    labels = [
        float(line.rpartition(",")[2]) for line in (data.TRAIN / "abalone.csv").read_text().splitlines()
    ]
    rows = np.loadtxt(build / "features" / "abalone.csv.out", delimiter=",")

    assert rows.shape == (data.ROWS, 11)
    assert rows[:, 0].tolist() == labels


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("M,0.44,0.365,0.125,0.516,0.2155,0.114", "row 1 has 7 columns: 8 are wanted"),
        ("M,0.44,0.365,0.125,0.516,0.2155,0.114,0.155\nM,0.44", "row 2 has 2 columns: 8 are wanted"),
        ("M,much,0.365,0.125,0.516,0.2155,0.114,0.155", "could not convert string to float: 'much'"),
    ],
)
def test_bad_rows_are_refused_with_the_stages_words(running: Stack, rows: str, words: str) -> None:
    """A missing column, a short row and text for a number: 424 that says which stage and why."""
    answer = ask(running, rows)

    assert answer.status == 424
    assert answer.json["error"].startswith("stage 1 (featurizer.tar.gz) answered 500: ")
    assert words in answer.json["OriginalMessage"]


def test_an_empty_cell_is_imputed(running: Stack) -> None:
    """The median stands in for a missing number."""
    assert ask(running, "M,,0.365,0.125,0.516,0.2155,0.114,0.155").status == 200
