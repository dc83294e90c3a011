"""Stacks that files share, one of each kind for the whole run, and the recorded answers."""

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contract.doors import BARE, Running, serving
from contract.stacks import KINDS

RECORDED = Path(__file__).parent / "recorded"
RECORDING = "CONTRACT_RECORD"
"""The variable with which a run writes the recorded files anew."""

Start = Callable[[str], Running]


@pytest.fixture(scope="session")
def stacks(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """A run by its kind, started when a test asks for it first; tests leave it as it is."""
    started: dict[str, Running | None] = {}
    with ExitStack() as opened:

        def start(kind: str) -> Running:
            if kind not in started:
                started[kind] = None
                words, env = KINDS[kind](saved_models, tmp_path_factory.mktemp(kind))
                started[kind] = opened.enter_context(serving(*words, env=env))
            running = started[kind]
            assert running is not None, f"the stack {kind} has not become ready"
            return running

        yield start


@pytest.fixture(params=["nginx", "bare"])
def front(request: pytest.FixtureRequest, stacks: Start) -> Running:
    """Models without a script, behind nginx and without it."""
    return stacks(request.param)


@pytest.fixture(params=[{}, BARE], ids=["nginx", "bare"])
def either(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings of a run of a test's own, with nginx and without it."""
    return dict(request.param)


class Check:
    """Compares values with recorded ones, by file and key; or records them."""

    def __call__(self, name: str, key: str, value: Any) -> None:
        """It is as it was."""
        if not _is_written(name, key, value):
            assert value == _kept(name)[key]

    def at_least(self, name: str, key: str, values: Collection[str]) -> None:
        """All that was there is there."""
        if not _is_written(name, key, values):
            assert set(_kept(name)[key]) <= set(values)


def _is_written(name: str, key: str, value: Any) -> bool:
    if not os.environ.get(RECORDING):
        return False
    path = RECORDED / f"{name}.json"
    path.write_text(_text({**(_kept(name) if path.exists() else {}), key: value}))
    return True


def _kept(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.fixture
def recorded() -> Check:
    """What is compared with the files below recorded/."""
    return Check()


def _text(document: dict[str, Any]) -> str:
    """JSON with a line for each key of the first two levels."""
    lines = []
    for key, value in sorted(document.items()):
        shown = json.dumps(value)
        if isinstance(value, dict) and len(shown) > 100:
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items())
            shown = f"{{\n{inner}\n }}"
        lines.append(f" {json.dumps(key)}: {shown}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
