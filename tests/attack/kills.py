"""Kills processes of a stack under load, and accounts for every request: sent = answered + cut + never accepted.

Each that was read has to be counted once in /metrics, too, but for what a killed process of the front had in hand.
"""

import contextlib
import itertools
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from attack.findings import Finding
from attack.fronts import Front
from attack.memory import tree
from support.load_generator import CLIENTS, NOT_ACCEPTED, Load, Outcome
from support.scraping import scrape

RECOVER_SECONDS = 120.0
ANSWERS_BETWEEN = 40
"""How many requests are answered between two kills, so that each meets a stack that works."""
SETTLED_SECONDS = 0.5
COUNT = "http_server_request_duration_seconds_count"
HOLDS_CLIENTS = {"nginx": {"nginx worker"}, "gunicorn": {"gunicorn worker"}}
"""Which processes hold the connections of clients, by front: what they have accepted ends with them."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Which kind of process was killed: not before ``at``, and not after ``done_at``."""

    role: str
    at: float
    done_at: float


@dataclass(frozen=True, slots=True)
class Account:
    """How often a kind of process was killed, and how many requests had which fate until the next kill."""

    kills: int
    fates: Counter[str]


def attack(front: Front, kills: int) -> list[Finding]:
    """``kills`` kills, of each kind of process in turn; one line per kind: what became of requests after it."""
    dice = random.Random(1)
    before = _counted(front)
    clients, killed = Load(front.connect), list[Kill]()
    try:
        # In turn: the supervisor gives up on a process that dies again and again before it has lived for long.
        for role in itertools.islice(itertools.cycle(sorted(victims(front))), kills):
            _wait_for_answers(front, clients)
            pid = dice.choice(_living(front, role))
            at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            killed.append(Kill(role, at, time.monotonic()))
        _wait_for_answers(front, clients)
    finally:
        clients.finish()
    accounts = _by_role(front, killed, clients.outcomes)
    findings = [_finding(front.name, role, account) for role, account in accounts.items()]
    return [*findings, _counting(front, killed, clients.outcomes, before)]


def _counting(front: Front, kills: list[Kill], outcomes: list[Outcome], before: float) -> Finding:
    """How many were counted of those that were read: lines come after answers, or not from a killed process."""
    read = sum(outcome.how != NOT_ACCEPTED for outcome in outcomes)
    exempt = CLIENTS * sum(kill.role in HOLDS_CLIENTS.get(front.name, set()) for kill in kills)
    front.stack.wait_until(
        lambda: _counted(front) - before >= read - exempt, f"{read} are counted, or {exempt} less"
    )
    time.sleep(SETTLED_SECONDS)
    counts = int(_counted(front) - before)
    note = f"read {read:,}, counted {counts:,}, exempt at most {exempt:,}"
    return Finding("requests counted once under kills", front.name, read, read - max(0, counts - read), note)


def _counted(front: Front) -> float:
    """How many requests to its path /metrics has; those of a stage stand beside those of its pipeline."""
    found = scrape(front.stack).values(COUNT, http_route=front.post)
    return sum(value for labels, value in found if "stage" not in labels)


def victims(front: Front) -> dict[str, list[int]]:
    roles: dict[str, list[int]] = {}
    processes = list(tree(front.stack.process.pid))[1:]
    for process in processes:
        with contextlib.suppress(psutil.Error):
            roles.setdefault(_role(process), []).append(process.pid)
    return roles


def _role(process: psutil.Process) -> str:
    words = _words(process)
    if "nginx:" in words:
        return "nginx worker" if "worker" in words else "nginx master"
    if "gunicorn" in words:
        leads = os.getpgid(process.pid) == process.pid  # a worker may have lost its master
        return "gunicorn master" if leads else "gunicorn worker"
    if "tfs_proxy.embedded" in words:
        return "model server"
    return "stage" if "tfs_proxy.cli" in words else f"helper {process.name()}"


def _words(process: psutil.Process) -> str:
    """The command line without folders, which may have any name."""
    return re.sub(r"\S*/", "", " ".join(process.cmdline()))


def _wait_for_answers(front: Front, clients: Load) -> None:
    wanted = clients.answered() + ANSWERS_BETWEEN
    front.stack.wait_until(lambda: clients.answered() >= wanted, "there are answers again", RECOVER_SECONDS)


def _living(front: Front, role: str) -> list[int]:
    return front.stack.wait_until(
        lambda: victims(front).get(role, []), f"there is a {role} again", RECOVER_SECONDS
    )


def _by_role(front: Front, kills: list[Kill], outcomes: list[Outcome]) -> dict[str, Account]:
    """What ended between a kill of a role and the next kill."""
    counts: dict[str, Counter[str]] = {kill.role: Counter() for kill in kills}
    for outcome in outcomes:
        before = [kill for kill in kills if kill.at <= outcome.at]
        if before:
            counts[before[-1].role][_fate(front, before, outcome)] += 1
    return {role: Account(sum(kill.role == role for kill in kills), fates) for role, fates in counts.items()}


def _fate(front: Front, kills: Iterable[Kill], outcome: Outcome) -> str:
    """How it ended; one that a kill may have met in the killed process is none of the others' business."""
    holds_clients = HOLDS_CLIENTS.get(front.name, set())
    met = any(kill.role in holds_clients and outcome.sent_at <= kill.done_at for kill in kills)
    return "in the killed process" if met and outcome.how.startswith("cut") else outcome.how


def _finding(target: str, role: str, account: Account) -> Finding:
    fates = account.fates
    lost = sum(count for fate, count in fates.items() if fate.startswith(("wrong", "cut")))
    sent = fates.total()
    note = f"{account.kills} kills; sent {sent:,}: " + ", ".join(
        f"{fate} {count:,}" for fate, count in fates.items()
    )
    return Finding(f"requests under kills of {role}", target, sent, sent - lost, note)
