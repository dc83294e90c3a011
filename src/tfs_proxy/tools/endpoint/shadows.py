"""Shadow variants: copies of requests, and the differences between their answers and production's."""

import asyncio
import csv
import io
import json
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import zip_longest
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.values.errors import UnsupportedMediaType
from tfs_proxy.values.latencies import Latencies
from tfs_proxy.wire import media_types as media

RELATIVE, ABSOLUTE = 1e-5, 1e-7
"""Default tolerances: the usual difference between two machines' float32 kernels."""

_SHOWN = 60
_MISSING = object()


def body_difference(content_type: str, ours: bytes, theirs: bytes, relative: float = RELATIVE) -> str | None:
    """A sentence that names the first difference between the bodies, or None.

    JSON is compared by value and CSV by cell, with a relative tolerance for numbers; other types, and bodies
    that can't be read, by their bytes.
    """
    if ours == theirs:
        return None
    try:
        kind = media.parse(content_type).type
    except UnsupportedMediaType:
        kind = ""
    try:
        if kind == media.JSON:
            return next(_differences(json.loads(ours), json.loads(theirs), "$", relative), None)
        if kind == media.CSV:
            return next(_differences(_cells(ours), _cells(theirs), "", relative), None)
    except (ValueError, RecursionError, OverflowError, csv.Error):
        pass
    pairs = enumerate(zip(ours, theirs, strict=False))
    place = next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
    return f"byte {place} differs (of {len(ours)} and {len(theirs)} bytes)"


def _cells(body: bytes) -> list[list[float | str]]:
    rows = csv.reader(io.StringIO(body.decode()))
    return [[_number_or_text(cell) for cell in row] for row in rows]


def _number_or_text(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _differences(ours: Any, theirs: Any, place: str, relative: float) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in {**ours, **theirs}:
            yield from _differences(
                ours.get(name, _MISSING), theirs.get(name, _MISSING), f"{place}.{name}", relative
            )
    elif isinstance(ours, list) and isinstance(theirs, list):
        for at, (one, other) in enumerate(zip_longest(ours, theirs, fillvalue=_MISSING)):
            yield from _differences(one, other, f"{place}[{at}]", relative)
    elif not _are_equal(ours, theirs, relative):
        yield f"{place} is {_shown(ours)} and {_shown(theirs)}"


def _are_equal(ours: Any, theirs: Any, relative: float) -> bool:
    if _is_number(ours) and _is_number(theirs):
        both_nan = math.isnan(ours) and math.isnan(theirs)
        return both_nan or math.isclose(ours, theirs, rel_tol=relative, abs_tol=ABSOLUTE)
    return type(ours) is type(theirs) and bool(ours == theirs)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


MOST_EXAMPLES = 10


class VariantAnswer(Struct, frozen=True):
    """A variant's answer: ``status`` 0 if it gave none; it took ``seconds``."""

    status: int
    content_type: str
    body: bytes
    seconds: float


class ShadowReport(Struct):
    """Comparison of ``shadow`` with ``production``; has the first differences with the requests' ids."""

    production: str
    shadow: str
    tolerance: float = RELATIVE
    copied: int = 0
    dropped: int = 0
    equal: int = 0
    statuses: Counter[tuple[int, int]] = field(default_factory=Counter)
    bodies: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)
    production_latencies: Latencies = field(default_factory=Latencies)
    shadow_latencies: Latencies = field(default_factory=Latencies)

    def add(self, inference_id: str, ours: VariantAnswer, theirs: VariantAnswer) -> None:
        """Compares the two answers to one request."""
        self.copied += 1
        self.production_latencies.add(ours.seconds)
        self.shadow_latencies.add(theirs.seconds)
        if ours.status != theirs.status:
            self.statuses[ours.status, theirs.status] += 1
            self._show(inference_id, f"the status is {ours.status} and {theirs.status}")
            return
        difference = body_difference(ours.content_type, ours.body, theirs.body, self.tolerance)
        if difference is None:
            self.equal += 1
        else:
            self.bodies += 1
            self._show(inference_id, difference)

    def document(self) -> dict[str, Any]:
        statuses = [
            {"production": ours, "shadow": theirs, "requests": count}
            for (ours, theirs), count in sorted(self.statuses.items())
        ]
        latencies = {
            "production": self.production_latencies.milliseconds(),
            "shadow": self.shadow_latencies.milliseconds(),
        }
        return {
            "production": self.production,
            "shadow": self.shadow,
            "copied": self.copied,
            "dropped": self.dropped,
            "equal": self.equal,
            "status_differences": statuses,
            "body_differences": self.bodies,
            "tolerance": self.tolerance,
            "examples": self.examples,
            "latency_ms": latencies,
        }

    def line(self) -> str:
        statuses = sum(self.statuses.values())
        ours, theirs = self.production_latencies.milliseconds(), self.shadow_latencies.milliseconds()
        return (
            f"shadow variant {self.shadow}: {self.copied} copies of requests to {self.production}, "
            f"{self.equal} answered alike, {statuses} with another status, {self.bodies} with another body, "
            f"{self.dropped} dropped; p50 {theirs['p50']:g} ms, and of production {ours['p50']:g} ms"
        )

    def _show(self, inference_id: str, difference: str) -> None:
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append({"inferenceId": inference_id, "difference": difference})


log = logging.getLogger(__name__)

MOST_COPIES = 64
"""Simultaneous copies: a slow shadow must not fill the memory."""

AskShadow = Callable[[], Awaitable[VariantAnswer]]
"""Sends the copy to the shadow variant; the answer has no time yet. Any exception counts as no answer."""


class ShadowCopies:
    """Copies a ``share`` (0 to 1) of requests, and compares the answers in its `report`."""

    def __init__(self, report: ShadowReport, share: float, draw: Callable[[], float] = random.random) -> None:
        self.report = report
        self._share, self._draw = share, draw
        self._tasks: set[asyncio.Task[None]] = set()

    def copy(self, inference_id: str, ours: VariantAnswer, ask: AskShadow) -> None:
        """Sends a sampled request to the shadow, too; never waits and never raises."""
        if self._draw() >= self._share:
            return
        if len(self._tasks) >= MOST_COPIES:
            self.report.dropped += 1
            return
        task = asyncio.create_task(self._compare(inference_id, ours, ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()

    async def _compare(self, inference_id: str, ours: VariantAnswer, ask: AskShadow) -> None:
        began = time.monotonic()
        try:
            theirs = await ask()
        except Exception as error:  # noqa: BLE001 (whatever it is, the production variant has answered)
            log.warning("shadow variant %s gave no answer: %s", self.report.shadow, error)
            theirs = VariantAnswer(0, "", b"", 0.0)
        self.report.add(inference_id, ours, replace(theirs, seconds=time.monotonic() - began))


def share_of(shadow_weight: float, production_weight: float) -> float:
    return min(1.0, shadow_weight / production_weight) if production_weight > 0 else 1.0
