"""Draws bars and curves as SVG, light or dark as the reader's screen is: README's picture from the tables of benchmarks/README.md.

python benchmarks/picture.py draws it anew; whatever writes those tables does so, too.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "README.md"
PICTURE = ROOT / "docs" / "assets" / "benchmark.svg"
BEGIN = "<!-- benchmark {}: written by make bench WRITE=1 -->"
END = "<!-- end of benchmark {} -->"
TITLE = "tfs_proxy beside a proxy of the shape of AWS's container, and beside LitServe and BentoML"
SHOWN = {
    "tiny JSON, 8 connections, requests/s": "tiny JSON, 8 connections",
    "JPEG of 106 KB, 8 connections, requests/s": "JPEG of 106 KB, 8 connections",
    "start to the first right answer, s": "start to the first right answer (less is better)",
    "memory of all processes, MB": "memory of all processes (less is better)",
}
"""Rows of the Python servers' table, and their headings; the unit is what follows the last comma."""
LINE, GAP, MARGIN = 20, 10, 14
COLUMN, WIDTH, LETTERS = 414, 832, 64
LINES = ("#8b95a5", "#d0662a", "#3b82d0", "#3a9a61")
"""Of curves: read on both sheets."""
STYLE = """
svg { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
text { fill: #1f2328 } .head { font-size: 15px; font-weight: 600 } .group { font-weight: 600 }
.small { font-size: 11px; fill: #59636e } .sheet { fill: #ffffff; stroke: #d1d9e0 }
.first { fill: #2f7d4f } .other { fill: #8b95a5 } .grid { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .sheet { fill: #0d1117; stroke: #3d444d }
  .first { fill: #3fb950 } .other { fill: #7d8590 } .grid { stroke: #3d444d }
}
"""


@dataclass(frozen=True)
class Bar:
    """A number with its name; ``shown`` has the unit."""

    name: str
    value: float
    shown: str


Group = tuple[str, Sequence[Bar]]
"""A heading, and bars to a common scale; the first is ours."""


class Sheet:
    """The parts of a picture, written downwards from a place."""

    def __init__(self, x: int = MARGIN, label: int = 112, longest: int = 165) -> None:
        self.x, self.y, self.label, self.longest = x, MARGIN, label, longest
        self.parts: list[str] = []

    def text(self, text: str, kind: str, height: int = LINE) -> None:
        """A line of its own."""
        self.y += height
        self.parts.append(f'<text class="{kind}" x="{self.x}" y="{self.y}">{escape(text)}</text>')

    def bars(self, groups: Iterable[Group], most: float = 0.0) -> None:
        """Groups of bars, each to a scale of its own unless ``most`` is that of all."""
        for heading, bars in groups:
            self.y += GAP
            self.text(heading, "group")
            longest = most or max(bar.value for bar in bars) or 1.0
            for at, bar in enumerate(bars):
                self.text(bar.name, "name")
                width, start = max(bar.value / longest * self.longest, 1), self.x + self.label
                kind = "other" if at else "first"
                self.parts += [
                    f'<rect class="{kind}" x="{start}" y="{self.y - 12}" width="{width:.0f}" height="15" rx="2"/>',
                    f'<text x="{start + width + 8:.0f}" y="{self.y}">{escape(bar.shown)}</text>',
                ]

    def small_print(self, text: str) -> None:
        """Sentences below it all."""
        self.y += 2 * GAP
        for line in textwrap.wrap(text.replace("`", ""), LETTERS):
            self.text(line, "small", 15)


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
            parts.append(f'<path d="M{left} {at:g}H{left + width}" class="grid"/>')
            parts.append(
                f'<text x="{left - 8}" y="{at + 4:g}" text-anchor="end">{most * share:,g}{unit}</text>'
            )
        for row, color in zip(rows, LINES if len(rows) > 1 else ("#808890",), strict=True):
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
    """The parts as a picture, on a sheet of its own colour: the reader's page may be dark or light."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    back = f'<rect class="sheet" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", back, *parts, "</svg>\n"]
    )


def section(page: Path, name: str) -> str:
    """What stands between the page's markers of this name. Raises ValueError if it has none."""
    begin, end = BEGIN.format(name), END.format(name)
    _, found, rest = page.read_text().partition(begin)
    text, closed, _ = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} lacks the markers {begin} and {end}")
    return text.strip()


def cells(text: str) -> Iterator[list[str]]:
    """The rows of the Markdown table in a text, without the line below its head."""
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def bar(name: str, number: str, unit: str) -> Bar:
    """A bar of a number as a table has it."""
    return Bar(name, float(number.replace(",", "")), f"{number} {unit}")


def beside_the_plain_proxy(text: str) -> Iterator[Group]:
    """The rows of the table of ratios that compare with the plain proxy."""
    for work, connections, rate, other, *_ in cells(text):
        name, _, beside = other.rpartition(" ")
        if name == "plain proxy":
            bars = bar("tfs_proxy", rate, "requests/s"), bar(name, beside, "requests/s")
            yield f"{work}, {connections} connections", bars


def beside_python_servers(text: str) -> Iterator[Group]:
    """The rows of the table of Python servers that are shown."""
    (_, *servers), *rows = cells(text)
    for what, *numbers in rows:
        if what in SHOWN:
            unit = what.rpartition(", ")[2]
            yield SHOWN[what], [bar(*each, unit) for each in zip(servers, numbers, strict=True)]


def prose(text: str) -> str:
    """A section without its table, in one line."""
    return " ".join(line for line in text.splitlines() if line and not line.startswith("|"))


def draw() -> None:
    """Write README's picture."""
    left, right = Sheet(MARGIN), Sheet(MARGIN + COLUMN)
    left.text("Beside the shape of AWS's container", "head")
    left.text("plain proxy: gunicorn with gevent, falcon, requests.post", "small")
    left.bars(beside_the_plain_proxy(section(PAGE, "ratios")))
    left.small_print(prose(section(PAGE, "conditions")))
    right.text("Beside Python servers", "head")
    right.text("the same SavedModel, each server by its defaults", "small")
    servers = section(PAGE, "python servers")
    right.bars(beside_python_servers(servers))
    right.small_print(prose(servers))
    height = max(left.y, right.y) + MARGIN
    PICTURE.write_text(svg(TITLE, WIDTH, height, [*left.parts, *right.parts]))


if __name__ == "__main__":
    draw()
