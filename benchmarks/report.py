"""Turns the results of `serving.py` into Markdown tables and a picture, and writes them into the pages."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rows import Row, Side

from processes import MODEL_SERVER, SUPERVISOR

BEGIN = "<!-- benchmark {}: written by make bench WRITE=1 -->"
END = "<!-- end of benchmark {} -->"
OWN_PARTS = ("nginx", "workers", SUPERVISOR, MODEL_SERVER)
SHOWN_CONNECTIONS = 8
LABEL_WIDTH, BAR_WIDTH, LINE_HEIGHT = 300, 270, 22
OURS, OTHERS = "#2f7d4f", "#8b95a5"
LINES = (OTHERS, "#c2571a", "#2563a8", OURS)


@dataclass(frozen=True)
class Figure:
    """A figure that is not a rate: what it is, as reached, the target, and whether it is kept."""

    what: str
    reached: str
    target: str
    met: bool | None


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
        lines.append(
            f"| {row.work} | {row.connections} | {rate} | {row.other.name} {other} | {ratio:.2f} "
            f"| {row.target:g} | {'no answer in time' if math.isnan(ratio) else verdict(ratio >= row.target)} |"
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


def picture(rows: Iterable[Row]) -> str:
    """Bars of both sides of the rows at 8 connections, each row to its own scale, as SVG."""
    shown = [row for row in rows if row.connections == SHOWN_CONNECTIONS]
    groups = [
        (row.work, [(side.name, statistics.median(side.rates)) for side in (row.ours, row.other)])
        for row in shown
    ]
    return bars("Requests per second at 8 connections", groups)


def bars(title: str, groups: Iterable[tuple[str, Sequence[tuple[str, float]]]], most: float = 0.0) -> str:
    """Bars of named rates in groups, each to a scale of its own unless ``most`` is that of all, as SVG."""
    parts, y = [], 10
    for heading, rates in groups:
        parts.append(f'<text x="10" y="{y + 14}" font-weight="bold">{escape(heading)}</text>')
        longest = most or max(rate for _, rate in rates) or 1.0
        for (name, rate), color in zip(rates, (OURS, OTHERS), strict=True):
            y += LINE_HEIGHT
            width = max(rate / longest * BAR_WIDTH, 1)
            parts += [
                f'<text x="10" y="{y + 14}">{escape(name)}</text>',
                f'<rect x="{LABEL_WIDTH}" y="{y + 2}" width="{width:.0f}" height="15" fill="{color}"/>',
                f'<text x="{LABEL_WIDTH + 10 + width:.0f}" y="{y + 14}">{_shown(rate)} requests/s</text>',
            ]
        y += LINE_HEIGHT + 12
    return svg(title, LABEL_WIDTH + BAR_WIDTH + 150, y, parts)


def curves(
    title: str,
    minutes: int,
    panels: Iterable[tuple[str, float, str, Sequence[Sequence[float]]]],
    names: Sequence[str],
) -> str:
    """Panels one above the other, with a line for each name over the minutes, as SVG.

    A panel has a heading, its highest value and that one's unit; a single line in it is nobody's.
    """
    parts, y, left, width, height = list[str](), 30.0, 70, 620, 80
    for heading, most, unit, rows in panels:
        parts.append(f'<text x="10" y="{y - 8:g}" font-weight="bold">{escape(heading)}</text>')
        for share in (0, 0.5, 1):
            at = y + height * (1 - share)
            parts.append(f'<path d="M{left} {at:g}H{left + width}" stroke="#d5d9e0"/>')
            parts.append(
                f'<text x="{left - 8}" y="{at + 4:g}" text-anchor="end">{most * share:,g}{unit}</text>'
            )
        for row, color in zip(rows, LINES if len(rows) > 1 else ("#000000",), strict=True):
            scaled = [y + height * (1 - min(value / most, 1)) for value in row]
            points = " ".join(
                f"{left + width * (at + 0.5) / len(row):.0f},{v:.0f}" for at, v in enumerate(scaled)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        y += height + 34
    for minute in range(0, minutes + 1, 5):
        parts.append(
            f'<text x="{left + width * minute / minutes:.0f}" y="{y - 16:g}" text-anchor="middle">{minute} min</text>'
        )
    for name, color in zip(names, LINES, strict=True):
        y += 18
        parts.append(f'<path d="M{left} {y - 4:g}h30" stroke="{color}" stroke-width="3"/>')
        parts.append(f'<text x="{left + 40}" y="{y:g}">{escape(name)}</text>')
    return svg(title, left + width + 30, round(y) + 14, parts)


def svg(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    """The parts as a picture, on white, which is read in the dark, too."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
    style = 'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>'
    return f"{head} {style}<title>{escape(title)}</title>{''.join(parts)}</svg>\n"


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
    _, _, rest = page.read_text().partition(BEGIN.format("ratios"))
    table, _, _ = rest.partition(END.format("ratios"))
    best: dict[str, float] = {}
    for work, rate in re.findall(r"^\| ([^|]+) \| \d+ \| ([\d,.]+) \|", table, re.MULTILINE):
        best[work] = max(best.get(work, 0.0), float(rate.replace(",", "")))
    return best


def _rate(side: Side) -> str:
    return _shown(statistics.median(side.rates))


def _shown(rate: float) -> str:
    return f"{rate:,.{0 if rate >= 100 else 1}f}"


def _milliseconds(cost: float) -> str:
    return f"{cost:.3f}" if cost < 1 else f"{cost:.2f}"
