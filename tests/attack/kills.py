"""Kills processes of a stack under load, and accounts for every request: sent = answered + cut + never accepted."""

import contextlib
import itertools
import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from attack.findings import Finding
from attack.fronts import Front
from attack.memory import tree
from support.load_generator import Lost, Unread, exchange

CLIENTS = 8
TIMEOUT_SECONDS = 60.0
RECOVER_SECONDS = 120.0
ANSWERS_BETWEEN = 40
"""How many requests are answered between two kills, so that each meets a stack that works."""
PAUSE_SECONDS = 0.05
HOLDS_CLIENTS = {"nginx": {"nginx worker"}, "gunicorn": {"gunicorn worker"}}
"""Which processes hold the connections of clients, by front: what they have accepted ends with them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request, when it was sent, and when that was seen."""

    number: int
    how: str
    sent_at: float
    at: float


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


class Clients:
    """Threads that send numbered requests on kept connections, and note what became of each."""

    def __init__(self, front: Front, count: int = CLIENTS) -> None:
        self._front = front
        self._numbers = itertools.count(1)
        self._outcomes: list[Outcome] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes)

    def answered(self) -> int:
        return sum(outcome.how == "answered" for outcome in self.outcomes)

    def finish(self) -> list[Outcome]:
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS + 10)
        assert not any(thread.is_alive() for thread in self._threads)
        return self.outcomes

    def _send(self) -> None:
        link: socket.socket | None = None
        while not self._over.is_set():
            number, sent_at = next(self._numbers), time.monotonic()
            try:
                how, link = self._one(number, link)
                at = time.monotonic()
            except Lost as error:
                how, link, at = f"cut: {error}", None, error.at
            self._outcomes.append(Outcome(number, how, sent_at, at))
            if how != "answered":
                self._over.wait(PAUSE_SECONDS)
        if link is not None:
            link.close()

    def _one(self, number: int, idle: socket.socket | None) -> tuple[str, socket.socket | None]:
        """How one request ends, and the connection if it is kept; one never read on a kept connection goes again.

        Raises Lost.
        """
        try:
            link = idle or self._front.connect()
            link.settimeout(TIMEOUT_SECONDS)
        except OSError:
            return "not accepted", None
        try:
            reply, body = exchange(link, json.dumps({"instances": [number]}).encode())
        except Unread:
            link.close()
            return self._one(number, None) if idle is not None else ("not accepted", None)
        except Lost:
            link.close()
            raise
        if reply.will_close:
            link.close()
        return _how(reply.status, body, number), None if reply.will_close else link


def _how(status: int, body: bytes, number: int) -> str:
    if status == 200:
        right = (
            {"predictions": [number / 2 + 2]},
            {"instances": [number]},
        )  # the model's, and a pipeline's echo
        return "answered" if json.loads(body) in right else "wrong"
    return f"refused {status}"


def attack(front: Front, kills: int) -> list[Finding]:
    """``kills`` kills, of each kind of process in turn; one line per kind: what became of requests after it."""
    dice = random.Random(1)
    clients, killed = Clients(front), list[Kill]()
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
        outcomes = clients.finish()
    accounts = _by_role(front, killed, outcomes)
    return [_finding(front.name, role, account) for role, account in accounts.items()]


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


def _wait_for_answers(front: Front, clients: Clients) -> None:
    wanted, deadline = clients.answered() + ANSWERS_BETWEEN, time.monotonic() + RECOVER_SECONDS
    while clients.answered() < wanted:
        assert time.monotonic() < deadline, f"no answers any more:\n{front.stack.log[-3000:]}"
        time.sleep(0.01)


def _living(front: Front, role: str) -> list[int]:
    deadline = time.monotonic() + RECOVER_SECONDS
    while not (pids := victims(front).get(role)):
        assert time.monotonic() < deadline, f"no {role} any more:\n{front.stack.log[-3000:]}"
        time.sleep(0.02)
    return pids


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
    lost = sum(count for fate, count in fates.items() if fate == "wrong" or fate.startswith("cut"))
    sent = fates.total()
    note = f"{account.kills} kills; sent {sent:,}: " + ", ".join(
        f"{fate} {count:,}" for fate, count in fates.items()
    )
    return Finding(f"requests under kills of {role}", target, sent, sent - lost, note)
