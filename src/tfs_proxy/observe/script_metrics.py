"""Metrics that scripts make with prometheus_client, from the files of its multiprocess mode.

Each process of a model has files of its own, named by its pid, which outlive it. Those of ended ones are
added up here, and removed. The library's own collector shows nothing if one file is damaged, a series for
each process of a Gauge, and any number of series (docs/explained/decisions.md).
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict

from tfs_proxy.observe.exposition import MergedFamily, escaped, merged, number
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.names import utf8
from tfs_proxy.values.processes import has_ended

log = logging.getLogger(__name__)

MOST_SERIES = 1000
"""Series of a model in a scrape; those that were in the one before stay."""

MOST_VALUES = 20_000
MOST_BYTES = 16 * MEGABYTE
"""Values that are read of a file, and its size: a damaged one may have no end."""

OURS = re.compile(r":*(?:tfs_proxy_|http_server_|hw_gpu_|tensorflow[_:])")
"""Beginnings of the names in the catalogue, and of the model servers' own metrics."""

_FILE = re.compile(r"(counter|histogram|summary|gauge)_(?:([a-z]+)_)?([0-9]+)\.db")


Series = tuple[str, str, str]
"""Name, kind and labels of samples that differ in nothing but ``le``."""

Point = tuple[float, float, str]
"""A value, its time if it is a Gauge's that shows the most recent one, and the mode of a Gauge."""

Points = dict[Series, dict[tuple[str, float], Point]]
"""The points of each by the end of the sample's name, and a bucket's bound."""

_COMBINE: Mapping[str, Callable[[Point, Point], Point]] = {
    "sum": lambda one, other: (one[0] + other[0], *one[1:]),
    "min": min,
    "max": max,
    "mostrecent": lambda one, other: max(one, other, key=itemgetter(1)),
}


class ScriptMetrics:
    """Reads the folders of models, whose names ``label`` gets; it is empty if there is one model."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._ended: dict[str, Points] = {}
        self._shown: dict[str, dict[Series, None]] = {}
        self._helps: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()

    def read(self, folders: Mapping[str, Path]) -> list[MergedFamily]:
        """Add up the files in ``folders``, by model; what can't be shown is logged once."""
        models = [*(model for model in self._shown if model in folders), *(folders.keys() - self._shown)]
        self._ended = {model: self._ended.get(model, {}) for model in models}
        before = self._shown
        self._shown = {model: {} for model in models}
        texts = {}
        for model, shown in self._shown.items():
            points: Points = {}
            for file in sorted(folders[model].glob("*.db")):
                self._read_file(model, file, points)
            _add(points, self._ended[model])
            lines: dict[str, float] = {}
            for series in sorted(points, key=lambda series: series not in before.get(model, {})):
                added = dict(_lines(series, points[series]))
                if any(OURS.match(text) or "\n" in text for text in added):
                    self._tell(model, f"the name {series[0]!r} is taken")
                elif len(lines) + len(added) > MOST_SERIES:
                    self._tell(
                        model, f"there are more than {MOST_SERIES} series", f", one is of {series[0]!r}"
                    )
                else:
                    shown[series] = None
                    lines |= added
            kinds = dict.fromkeys(series[:2] for series in shown)
            heads = [f"# TYPE {name} {kind}\n# HELP {name} {self._helps[name]}" for name, kind in kinds]
            texts[model] = "\n".join([*heads, *(f"{text} {number(value)}" for text, value in lines.items())])
        return merged(texts, self._label)

    def _read_file(self, model: str, file: Path, points: Points) -> None:
        """Add a file's values to ``points``, or those of a process that has ended to what is kept of such."""
        match = _FILE.fullmatch(file.name)
        if match is None or not file.is_file():
            return
        kind = match[1]
        mode = match[2] or ""
        pid = match[3]
        ended = has_ended(int(pid))
        found: Points = {}
        try:
            size = file.stat().st_size
            if size > MOST_BYTES:
                raise ValueError(f"it has {size} bytes")  # noqa: TRY301 - as a damaged one
            values = MmapedDict.read_all_values_from_file(str(file)) if size else ()  # type: ignore[no-untyped-call]
            for key, value, at, _ in islice(values, MOST_VALUES):
                name, suffix, labels, bound, self._helps[name] = _read_key(key)
                of = f'{labels}pid="{pid}",' if mode == "liveall" else labels
                found.setdefault((name, kind, of), {})[suffix, bound] = value, at, mode
        except Exception as error:  # noqa: BLE001 - a script can write anything
            self._tell(model, "a file can't be read", f", {file.name}: {type(error).__name__}: {error}")
            found = {}
        if ended:
            with suppress(OSError):
                file.unlink()
                points = self._ended[model]
        if not (ended and (mode == "all" or mode.startswith("live"))):
            _add(points, found)

    def _tell(self, model: str, reason: str, example: str = "") -> None:
        if (model, reason) not in self._told:
            self._told.add((model, reason))
            of = f" of {model}" if model else ""
            log.warning("metrics of the script%s are left out of /metrics: %s%s", of, reason, example)


def _add(points: Points, more: Points) -> None:
    for series, values in more.items():
        if series in points or len(points) < MOST_VALUES:
            before = points.setdefault(series, {})
            for place, point in values.items():
                combine = _COMBINE.get(point[2].removeprefix("live"), _COMBINE["sum"])
                before[place] = combine(before[place], point) if place in before else point


@lru_cache(8192)
def _read_key(key: str) -> tuple[str, str, str, float, str]:
    """Read a metric's name, the end of its sample's, labels with a comma after each, ``le``, and help."""
    name, sample, labels, help_text = json.loads(key)
    bound = float(labels.pop("le", 0)) if sample == f"{name}_bucket" else 0.0
    text = "".join(f'{label}="{escaped(value)}",' for label, value in labels.items())
    help_line = utf8(help_text).replace("\\", r"\\").replace("\n", r"\n")
    return name, sample.removeprefix(name), text, bound, help_line


def _lines(series: Series, values: Mapping[tuple[str, float], Point]) -> Iterator[tuple[str, float]]:
    """Write a series; a histogram's buckets are cumulative here, as they are not in the files."""
    name, kind, labels = series
    total = 0.0
    for (suffix, bound), (value, *_) in sorted(values.items()):
        if suffix == "_bucket":
            total += value
            yield f'{name}_bucket{{{labels}le="{number(bound)}"}}', total
        else:
            yield f"{name}{suffix}{{{labels}}}", value
    if kind == "histogram":
        yield f"{name}_count{{{labels}}}", total
