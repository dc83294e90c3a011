"""Turns the results of `serving.py` into Markdown tables, and writes tables into the pages."""

import math
import os
import platform
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from picture import BEGIN, END, cells, section
from rows import Row, Side

from processes import MODEL_SERVER, SUPERVISOR

BUSY_CORES = 0.3
BUSY = "Other work ran on the machine at the same time, so rates and ratios are rough."
OWN_PARTS = ("nginx", "workers", SUPERVISOR, MODEL_SERVER)


@dataclass(frozen=True)
class Figure:
    """A figure that is not a rate: what it is, as reached, the target if there is one, and whether it is kept."""

    what: str
    reached: str
    target: str = ""
    met: bool | None = None


def median_ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' ratios: what disturbs a whole round is in both of its sides.

    Rounds in which the other side answered nothing do not count; nan without any other.
    """
    pairs = [own / other for own, other in zip(ours, others, strict=True) if other]
    return statistics.median(pairs) if pairs else math.nan


def median_costs(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each part's CPU milliseconds per request."""
    parts = {part for cost in costs for part in cost}
    return {part: statistics.median(cost.get(part, 0.0) for cost in costs) for part in parts}


def verdict(met: bool | None) -> str:
    """A word for a target that is met, missed or not set."""
    return {None: "", True: "met", False: "missed"}[met]


def ratios(rows: Iterable[Row]) -> str:
    """The rates and ratios with their targets."""
    lines = [
        "| work | connections | requests/s | compared with (requests/s) | ratio | target | |",
        "|---|--:|--:|---|--:|--:|---|",
    ]
    for row in rows:
        ratio = median_ratio(row.ours.rates, row.other.rates)
        rate, other = (_rate(side) for side in (row.ours, row.other))
        target = "" if row.target is None else f"{row.target:g}"
        met = verdict(None if row.target is None else ratio >= row.target)
        lines.append(
            f"| {row.work} | {row.connections} | {rate} | {row.other.name} {other} | {ratio:.2f} "
            f"| {target} | {'no answer in time' if math.isnan(ratio) else met} |"
        )
    return "\n".join(lines)


def costs(rows: Iterable[Row]) -> str:
    """CPU milliseconds per request of each process."""
    head = ["work", "connections", *OWN_PARTS, "compared with"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 2) + "---|"]
    for row in rows:
        own, other = median_costs(row.ours.costs), median_costs(row.other.costs)
        cells = [_milliseconds(own[part]) if part in own else "-" for part in OWN_PARTS]
        beside = ", ".join(f"{part} {_milliseconds(cost)}" for part, cost in sorted(other.items()))
        lines.append(f"| {row.work} | {row.connections} | {' | '.join(cells)} | {beside} |")
    return "\n".join(lines)


def figures(rows: Iterable[Figure]) -> str:
    """Start, memory and idle CPU with their targets."""
    lines = ["| | reached | target | |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.reached} | {row.target} | {verdict(row.met)} |" for row in rows]
    return "\n".join(lines)


def machine(busy: float) -> str:
    """The beginning of a sentence: the day, the machine and what else it did."""
    before = f"{busy:.1f} of them busy" if busy >= BUSY_CORES / 10 else "idle"
    cores = f"{os.cpu_count()} cores, {before} before"
    return f"Measured on {time.strftime('%Y-%m-%d')}: {platform.machine()}, {cores}"


def disturbed(busy: float) -> list[str]:
    """A sentence if other work kept so many cores busy."""
    return [BUSY] if busy > BUSY_CORES else []


def replace_section(page: Path, name: str, text: str) -> None:
    """Put ``text`` between the page's markers of this name. Raises ValueError if the page has none."""
    begin, end = BEGIN.format(name), END.format(name)
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} lacks the markers {begin} and {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def measured(page: Path) -> dict[str, float]:
    """Our best rate of each piece of work, from the page that has the rates."""
    _, *rows = cells(section(page, "ratios"))
    best: dict[str, float] = {}
    for work, _, rate, *_ in rows:
        best[work] = max(best.get(work, 0.0), float(rate.replace(",", "")))
    return best


def _rate(side: Side) -> str:
    return _shown(statistics.median(side.rates))


def _shown(rate: float) -> str:
    return f"{rate:,.{0 if rate >= 100 else 1}f}"


def _milliseconds(cost: float) -> str:
    return f"{cost:.3f}" if cost < 1 else f"{cost:.2f}"
