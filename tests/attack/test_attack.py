"""The attack: a little of each in two minutes, and with ATTACK=long, as `make attack` has it, more in fifteen."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from attack import (
    amplification,
    answers,
    bombs,
    exhaustion,
    full_disk,
    fuzzing,
    kills,
    tensors,
)
from attack.findings import fallen
from attack.fronts import Front, all_fronts, kinds
from attack.raw_http.attack import CASES, attack
from support.small_disks import can_mount

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

NAMES = (*kinds(), "embedded")
BUFFERING = tuple(name for name in NAMES if name != "gunicorn")
FRONT = kinds()[0]
LONG = os.environ.get("ATTACK") == "long"
BOMBS = (
    "gzip: 50 million numbers",
    "gzip: CSV of 50 million numbers",
    "gzip: 33 million empty lists",
    "gzip: form of 10 million parts",
    "gzip: form without an end",
    "sparse record of 26 million",
    "npy header of 10^18",
    "3.9 MB of {",
)
CHOSEN = [bomb for bomb in bombs.BOMBS if LONG or bomb.name in BOMBS]
AT_ONCE = 100 if LONG else 20
ANSWERS = 1000 if LONG else 50
KILLS = 24 if LONG else 6
KILLED = kinds() if LONG else (FRONT,)
EFFORT = fuzzing.Effort(inputs=500_000 if LONG else 100_000, seconds=160 if LONG else 10, group=18)
TENSORS = 10_000 if LONG else 1000


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Front]]:
    with all_fronts(tmp_path_factory.mktemp("fronts")) as ready:
        yield {front.name: front for front in ready}


@pytest.mark.parametrize("name", NAMES)
def test_raw_requests_get_their_answers(fronts: dict[str, Front], name: str) -> None:
    assert len(CASES) >= 111
    assert fallen(attack([fronts[name]])) == ""


@pytest.mark.parametrize("name", BUFFERING)
def test_slow_clients_keep_nobody_else_waiting(fronts: dict[str, Front], name: str) -> None:
    """Readiness and work are answered beside 260 connections that send next to nothing."""
    assert fallen(exhaustion.slow_clients(fronts[name])) == ""


@pytest.mark.parametrize("name", kinds())
def test_clients_that_leave_take_no_memory_along(fronts: dict[str, Front], name: str) -> None:
    assert fallen(exhaustion.leavers(fronts[name])) == ""


@pytest.mark.parametrize("bomb", CHOSEN, ids=lambda bomb: bomb.name)
def test_a_small_body_does_not_become_a_large_one(fronts: dict[str, Front], bomb: bombs.Bomb) -> None:
    assert fallen([amplification.alone(fronts[FRONT].stack, bomb)]) == ""


def test_many_bombs_at_once_leave_room_for_small_requests(fronts: dict[str, Front]) -> None:
    front = fronts[FRONT]
    assert fallen([amplification.together(front.stack, front, CHOSEN, AT_ONCE)]) == ""


def test_large_answers_leave_no_memory_behind(tmp_path: Path) -> None:
    assert fallen(answers.attack(tmp_path, ANSWERS)) == ""


@pytest.mark.parametrize("name", [name for name in KILLED if name != "gunicorn"])
def test_idle_connections_do_not_use_up_the_descriptors(tmp_path: Path, name: str) -> None:
    assert fallen(exhaustion.descriptors(tmp_path, name)) == ""


@pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here")
def test_a_full_disk_ends_no_worker(tmp_path: Path) -> None:
    """Workers that start then serve without their files; nothing is left of it once there is room."""
    assert fallen(full_disk.attack(tmp_path)) == ""


@pytest.mark.skipif(not fuzzing.can_fuzz(), reason="atheris is not installed")
def test_parsers_refuse_in_words(tmp_path: Path) -> None:
    findings = fuzzing.attack(tmp_path, EFFORT)
    assert sum(finding.tried for finding in findings) > 1000
    assert fallen(findings) == ""


def test_odd_tensors_end_nothing(tmp_path: Path) -> None:
    """The embedded server answers each in words, whatever shape, type, nesting and contents it has."""
    assert fallen(tensors.attack(tmp_path, TENSORS)) == ""


@pytest.mark.parametrize("name", KILLED)
def test_kills_lose_no_accepted_request(fronts: dict[str, Front], name: str) -> None:
    """Every request is answered, or was never accepted, or ended with the killed process itself; and counted once."""
    findings = kills.attack(fronts[name], KILLS)
    assert sum(finding.tried for finding in findings) > KILLS
    assert fallen(findings) == ""
