"""Kills processes and reloads nginx under a mix of requests, and compares clients' counts with those of /metrics.

Every request has to be counted once, under its route, method and status. Exempt is what was in flight in a
killed nginx, or without nginx in a killed worker: such requests are counted once or not at all.
"""

import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from attack.counting_clients import CLIENTS, HUNG_UP, INVOCATIONS, Clients, GrpcClient, Labels
from attack.findings import Finding
from attack.fronts import Front, front_of, stack_of
from attack.kills import victims
from support.archives import has_nginx
from support.scraping import Scrape, scrape
from support.waiting import wait_until

RECOVER_SECONDS = 120.0
COUNT = "http_server_request_duration_seconds_count"
RELOAD = "reload of nginx"
ENV = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "1", "SAGEMAKER_GUNICORN_WORKERS": "2"}


@dataclass(frozen=True, slots=True)
class Blow:
    """What is done to a stack, and how often it has been done."""

    name: str
    strike: Callable[[], None]


def blows(front: Front, *, nginx_too: bool) -> list[Blow]:
    roles = [role for role in sorted(victims(front)) if nginx_too or not role.startswith("nginx")]
    strikes = [Blow(f"kill of {role}", lambda role=role: _kill(front, role)) for role in roles]  # type: ignore[misc]
    return [*strikes, Blow(RELOAD, lambda: _reload(front))] if "nginx master" in victims(front) else strikes


def _kill(front: Front, role: str) -> None:
    os.kill(_living(front, role)[0], signal.SIGKILL)


def _reload(front: Front) -> None:
    os.kill(_living(front, "nginx master")[0], signal.SIGHUP)


def _living(front: Front, role: str) -> list[int]:
    return wait_until(lambda: victims(front).get(role, []), RECOVER_SECONDS, f"there is a {role}")


def counted(front: Front) -> Counter[Labels]:
    """What `/metrics` has, by route, method and status."""
    counts: Counter[Labels] = Counter()
    for labels, value in _scraped(front).values(COUNT):
        route, method = labels["http_route"], labels["http_request_method"]
        counts[route, method, labels["http_response_status_code"]] += int(value)
    return counts


def _scraped(front: Front) -> Scrape:
    """All of it; a reload of nginx may close a connection on which nothing has come yet, so ask again."""

    def scraped() -> Scrape | None:
        with contextlib.suppress(ConnectionError):
            return scrape(front.stack)
        return None

    found = front.stack.wait_until(scraped, "/metrics is answered", RECOVER_SECONDS)
    assert found is not None
    return found


def attack(front: Front, requests: int, strikes: int, *, nginx_too: bool) -> list[Finding]:
    """Send ``requests`` while ``strikes`` blows fall, one after the other; what was counted of them."""
    before = counted(front)
    clients = Clients(front)
    calls = GrpcClient(front.stack.grpc) if front.name == "nginx" else None
    struck, fell = _strike(front, clients, requests, strikes, nginx_too=nginx_too)
    answered, cut = clients.finish()
    if calls is not None:
        calls.finish()
        answered["other", "POST", "200"] += calls.refused
        cut += calls.cut
    front.stack.wait_until(front.answers, "it serves again", RECOVER_SECONDS)
    after = _settled(front, answered.total() + before.total())
    return _findings(front, struck, answered, cut, after - before, fell)


def _strike(
    front: Front, clients: Clients, requests: int, strikes: int, *, nginx_too: bool
) -> tuple[Counter[str], int]:
    """The blows by name, and how often any count in /metrics was lower than before."""
    struck, fell, last = Counter[str](), 0, counted(front)
    kinds = itertools.cycle(blows(front, nginx_too=nginx_too))
    for number in range(1, strikes + 1):
        _wait_for(front, clients, requests * number // (strikes + 1))
        blow = next(kinds)
        blow.strike()
        struck[blow.name] += 1
        front.stack.wait_until(front.answers, "it serves again", RECOVER_SECONDS)
        now = counted(front)
        fell += bool(last - now)
        last = now
    _wait_for(front, clients, requests)
    return struck, fell


def _wait_for(front: Front, clients: Clients, sent: int) -> None:
    front.stack.wait_until(lambda: clients.sent >= sent, f"{sent} requests have been sent", 3600)


def _settled(front: Front, most: int) -> Counter[Labels]:
    """The counts when no more lines come; the last are written after their answers."""
    deadline, last = time.monotonic() + 20, counted(front)
    while last.total() < most and time.monotonic() < deadline:
        time.sleep(0.2)
        last = counted(front)
    time.sleep(0.5)
    return counted(front)


def _findings(
    front: Front,
    struck: Mapping[str, int],
    answered: Counter[Labels],
    cut: int,
    counts: Counter[Labels],
    fell: int,
) -> list[Finding]:
    """One line on the sum, and one on the labels: what is beyond them are the clients that hung up."""
    hung_up = answered.pop((INVOCATIONS, "POST", HUNG_UP), 0)
    uncounted = answered - counts
    beyond = counts - answered
    other = sum(count for labels, count in beyond.items() if labels[:2] != (INVOCATIONS, "POST"))
    exempt = cut if any("nginx" in name and name != RELOAD for name in struck) or front.name != "nginx" else 0
    exempt += CLIENTS * sum(times for name, times in struck.items() if _holds_clients(front, name))
    difference = beyond.total() - hung_up - uncounted.total()
    note = (
        f"sent {answered.total() + hung_up + cut:,}: answered {answered.total():,}, hung up {hung_up:,}, cut "
        f"{cut:,}; counted {counts.total():,}, difference {difference:+,}, exempt at most {exempt:,}; "
        + ", ".join(f"{times} x {name}" for name, times in struck.items())
    )
    sent = answered.total() + hung_up
    wrong = max(0, abs(difference) - exempt) + max(0, uncounted.total() + other - 2 * exempt)
    return [
        Finding("requests are counted once under kills", front.name, sent, sent - wrong, note),
        Finding("no count falls under kills", front.name, sum(struck.values()), sum(struck.values()) - fell),
    ]


def _holds_clients(front: Front, blow: str) -> bool:
    """Whether the killed process held connections of clients."""
    return blow.startswith("kill of nginx" if front.name == "nginx" else "kill of gunicorn")


def plan(requests: int) -> list[tuple[str, int, bool]]:
    """The stacks: all requests without kills of nginx, and a tenth of them for what may lose some."""
    gunicorn = ("gunicorn", requests // 10, False)
    return (
        [("nginx", requests, False), ("nginx", requests // 10, True), gunicorn] if has_nginx() else [gunicorn]
    )


def against(name: str, folder: Path, requests: int, strikes: int, nginx_too: bool) -> list[Finding]:
    env = {**ENV, "TFS_PROXY_GRPC_PORT": "0"} if name == "nginx" else ENV
    with stack_of(name, folder, env) as stack:
        return attack(front_of(name, stack), requests, strikes, nginx_too=nginx_too)
