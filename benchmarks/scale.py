"""Simulates containers behind an autoscaler: who is refused, and who waits, when the load is suddenly four times as much.

Measured is the rate of a container (the table of the page on benchmarks), assumed are Kubernetes' defaults and the
seconds until a new container serves. Requests come at random and wait in the container that they came to;
one that would wait longer than a limit is refused. ``--write`` makes the picture and the tables of the page.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from picture import curves
from report import measured, replace_section

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURE = DOCS / "explained" / "scale.md", DOCS / "assets" / "scale.svg"
WORK = "JPEG, classic script with base64"
KILOBYTES = {"tiny": 0.6, "JPEG": 106, "224x": 602, "1 MB": 1000}
"""The size of a request of each work, with its head."""
STARTS = {
    5: "image and model are there",
    20: "fetches the model",
    60: "pulls the image, too",
    180: "needs a new node",
}
TARGETS = (0.7, 0.5, 0.35, 0.25)
BASE, MINUTE, DAY = 10_000.0, 60.0, 86_400.0
STEP, PERIOD, WAIT_LIMIT, SHRINK_AFTER = 0.1, 15.0, 1.5, 300.0
"""Seconds of a step, between two looks of the metrics and of the autoscaler, of the longest wait, before it shrinks."""
LOOK, DECIDE = round(PERIOD / STEP), round(PERIOD / STEP) // 2
TOLERANCE, SPARE = 0.1, 0.5
CPU, IN_FLIGHT = "CPU", "requests in flight"
Load = Callable[[float], float]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Policy:
    """A share of its CPU that a container should use, and how many seconds a new one takes until it serves.

    ``follows`` are the metrics; of several, the one that asks for most containers decides. With a ``poll`` it begins
    with none, and something looks for requests every so many seconds; if it ``holds`` them, they wait for the first.
    """

    name: str
    busy: float
    start: float
    follows: tuple[str, ...] = (CPU,)
    poll: float = 0.0
    holds: bool = False


POLICIES = (
    Policy("follows CPU, target 70 % busy; a container starts in 60 s", 0.7, 60),
    Policy("follows CPU, target 70 % busy; it starts in 5 s", 0.7, 5),
    Policy(
        "follows CPU and requests in flight, target 70 % busy; it starts in 5 s", 0.7, 5, (CPU, IN_FLIGHT)
    ),
    Policy(
        "follows CPU and requests in flight, target 35 % busy; it starts in 5 s", 0.35, 5, (CPU, IN_FLIGHT)
    ),
)
MINUTES = 33


def in_flight(busy: float) -> float:
    """Requests that two cores have on average, those included that wait for a moment (M/M/2)."""
    return 2 * busy / (1 - min(busy, 0.99) ** 2)


class Fleet:
    """The containers of a policy: the work that waits in each, those that start, and what the autoscaler has seen."""

    def __init__(self, policy: Policy, load: Load, rate: float) -> None:
        self.policy, self.load, self.rate = policy, load, rate
        self.dice = np.random.default_rng(0)
        self.targets = {CPU: policy.busy, IN_FLIGHT: in_flight(policy.busy)}
        self.queues = np.zeros(0 if policy.poll else math.ceil(load(0) / (rate * policy.busy)))
        self.starting: list[float] = []
        self.held: list[tuple[float, float]] = []
        self.wishes: list[tuple[float, int]] = []
        self.used, self.seen = 0.0, {CPU: 0.0, IN_FLIGHT: 0.0}
        self.came, self.refused, self.sizes = list[float](), list[float](), list[int]()
        self.waits: list[tuple[Numbers, Numbers]] = []

    def play(self, seconds: float) -> "Fleet":
        """Let requests come for so long; the same ones in each run."""
        for number in range(round(seconds / STEP)):
            now = number * STEP
            self.queues = np.append(self.queues, np.zeros(sum(at <= now for at in self.starting)))
            self.starting = [at for at in self.starting if at > now]
            (self._serve if self.queues.size else self._wake)(number, now)
            if number % LOOK == DECIDE and self.queues.size and number > LOOK:
                self._scale(now)
        return self

    def _wake(self, number: int, now: float) -> None:
        """Hold or refuse what comes while there is no container, and start one."""
        came = float(self.dice.poisson(self.load(now) * STEP))
        if self.policy.holds:
            self.held.append((now, came))
        self._count(came, 0.0 if self.policy.holds else came, np.zeros(0), np.zeros(0))
        if came and not self.starting and number % max(round(self.policy.poll / STEP), 1) == 0:
            self.starting.append(now + self.policy.start)

    def _serve(self, number: int, now: float) -> None:
        count = self.queues.size
        came = self.dice.poisson(self.load(now) * STEP / count, count).astype(float)
        held = np.array([held for _, held in self.held])
        room = (WAIT_LIMIT + STEP) * self.rate - self.queues
        taken = np.minimum(came + held.sum() / count, room)
        waits = np.append(self.queues / self.rate, [now - at for at, _ in self.held])
        self._count(came.sum(), came.sum() + held.sum() - taken.sum(), waits, np.append(taken, held))
        self.held = []
        served = np.minimum(self.queues + taken, self.rate * STEP)
        self.queues = self.queues + taken - served
        self.used += served.sum() / (self.rate * PERIOD)
        if number % LOOK == 0:
            waiting = count * in_flight(self.used / count) + self.queues.sum()
            self.seen, self.used = {CPU: self.used, IN_FLIGHT: waiting}, 0.0

    def _scale(self, now: float) -> None:
        """Do what HorizontalPodAutoscaler does by default; one that starts counts as idle."""
        have = self.queues.size + len(self.starting)
        ratios = [self.seen[metric] / self.targets[metric] / have for metric in self.policy.follows]
        wishes = [have if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * have) for ratio in ratios]
        wish = max(1, min(max(wishes), max(2 * have, have + 4)))
        self.wishes = [(at, size) for at, size in self.wishes if at > now - SHRINK_AFTER] + [(now, wish)]
        self.starting += [now + self.policy.start] * (wish - have)
        least = max(size for _, size in self.wishes)
        if least < have and not self.starting and now > SHRINK_AFTER:
            self.queues = self.queues[:least]  # those that stop finish what they have

    def _count(self, came: float, refused: float, waits: Numbers, numbers: Numbers) -> None:
        self.came.append(came)
        self.sizes.append(self.queues.size)
        self.refused.append(refused)
        self.waits.append((waits, numbers))

    def refused_percent(self, begin: float, end: float) -> float:
        """The part of the requests of these seconds that was refused."""
        part = slice(round(begin / STEP), round(end / STEP))
        return 100 * sum(self.refused[part]) / max(sum(self.came[part]), 1)

    def p99(self, begin: float, end: float) -> float:
        """The wait in these seconds that one request of a hundred exceeded."""
        part = [pair for pair in self.waits[round(begin / STEP) : round(end / STEP)] if pair[1].sum()]
        if not part:
            return 0.0
        waits, numbers = (np.concatenate(column) for column in zip(*part, strict=True))
        order = np.argsort(waits)
        at = int(np.searchsorted(numbers[order].cumsum(), 0.99 * numbers.sum()))
        return float(waits[order][min(at, waits.size - 1)])


def day(now: float) -> float:
    """Load of a morning: it rises, is four times as much for ten minutes, and three times for 30 s."""
    wave = BASE * (1 + 0.5 * math.sin(2 * math.pi * now / DAY))
    return wave * (4 if 5 <= now / MINUTE < 15 else 3 if 28 <= now / MINUTE < 28.5 else 1)


def growing(now: float, minutes: float) -> float:
    """Four times the load after five minutes, reached within so many."""
    return BASE * (1 + 3 * min(max(now / MINUTE - 5, 0) / max(minutes, STEP / MINUTE), 1))


def containers(rates: dict[str, float]) -> str:
    """How many carry 10,000 and 1,000,000 requests a second, with half of their rate to spare."""
    lines = [
        "| work | one container carries | containers for 10,000/s | for 1,000,000/s | bodies at 10,000/s |"
    ]
    lines.append("|---|--:|--:|--:|--:|")
    for work, rate in rates.items():
        for size in (size for name, size in KILOBYTES.items() if work.startswith(name)):
            small, large = (math.ceil(load / (rate * SPARE)) for load in (BASE, 100 * BASE))
            gigabits = f"{size * 8e3 * BASE / 1e9:.2g} Gbit/s"
            lines.append(f"| {work} | {rate:,.0f}/s | {small:,} | {large:,} | {gigabits} |")
    return "\n".join(lines)


def headroom(rate: float) -> str:
    """The percentage refused in the ten minutes from the beginning of a growth on, by start and target."""
    lines = [f"| a container starts in | {' | '.join(f'{target:.0%} busy' for target in TARGETS)} |"]
    lines.append("|---|" + "--:|" * len(TARGETS))
    for start, why in STARTS.items():
        cells = []
        for busy in TARGETS:
            fleets = [
                Fleet(Policy("", busy, start, (CPU, IN_FLIGHT)), partial(growing, minutes=minutes), rate)
                for minutes in (0, 5)
            ]
            lost = [fleet.play(15 * MINUTE).refused_percent(5 * MINUTE, 15 * MINUTE) for fleet in fleets]
            cells.append(" / ".join(f"{part:.1f}" if part else "0" for part in lost))
        lines.append(f"| {start} s: {why} | {' | '.join(cells)} |")
    return "\n".join(lines)


def from_zero(rate: float) -> str:
    """What the first of 200 requests a second meet where no container runs."""
    lines = ["| a container starts in | looked for every 30 s | held by a proxy |", "|---|---|---|"]
    for start in STARTS:
        asleep, held = (
            Fleet(policy, lambda now: 200.0 * (now >= 10), rate).play(5 * MINUTE)
            for policy in (Policy("", 0.7, start, poll=30), Policy("", 0.7, start, poll=STEP, holds=True))
        )
        waited = max(float(waits[numbers > 0].max(initial=0)) for waits, numbers in held.waits)
        lines.append(
            f"| {start} s | refused for {sum(lost > 0 for lost in asleep.refused) * STEP:.0f} s "
            f"| the first waits {waited:.0f} s, {sum(held.refused):,.0f} are refused |"
        )
    return "\n".join(lines)


def picture(rate: float) -> str:
    """Load, containers, refusals and waits of the policies over half an hour, as SVG."""
    fleets = [Fleet(policy, day, rate).play(MINUTES * MINUTE) for policy in POLICIES]
    spans = [(at * PERIOD, (at + 1) * PERIOD) for at in range(round(MINUTES * MINUTE / PERIOD))]
    sizes = [[float(fleet.sizes[round(end / STEP) - 1]) for _, end in spans] for fleet in fleets]
    refused = [[fleet.refused_percent(*span) for span in spans] for fleet in fleets]
    waits = [[fleet.p99(*span) for span in spans] for fleet in fleets]
    panels = [
        ("Requests a second", 50_000.0, "", [[day(begin) for begin, _ in spans]]),
        ("Containers", 100.0, "", sizes),
        ("Refused", 80.0, " %", refused),
        ("Wait that one request of a hundred exceeds", 2.0, " s", waits),
    ]
    title = "Containers behind an autoscaler at four times the load"
    return curves(title, MINUTES, panels, [policy.name for policy in POLICIES])


def main() -> None:
    """Simulate, print, and write the picture and the page's tables if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the picture and the tables into the documentation"
    )
    given = parser.parse_args()
    rates = measured(DOCS / "explained" / "benchmarks.md")
    rate = rates[WORK]
    tables = {"containers": containers(rates), "headroom": headroom(rate), "zero": from_zero(rate)}
    print(*tables.values(), sep="\n\n")
    alone = (
        Fleet(Policy("", 0.7, 5, (IN_FLIGHT,)), day, rate)
        .play(28 * MINUTE)
        .sizes[-round(7 * MINUTE / STEP) :]
    )
    print(f"\nBy {IN_FLIGHT} alone, 5 s, from minute 21 to 28: {min(alone)} to {max(alone)} containers")
    if given.write:
        for name, table in tables.items():
            replace_section(PAGE, name, table)
        PICTURE.write_text(picture(rate))


if __name__ == "__main__":
    main()
