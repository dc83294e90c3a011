"""An hour of good and bad requests: memory has to stay flat over the last half of it."""

import contextlib
import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attack import corpus
from attack.findings import Finding
from attack.fronts import BODY, Front
from attack.memory import MEGABYTE, anonymous_bytes

CLIENTS = 4
SAMPLE_SECONDS = 2.0
MOST_GROWTH = 0.03
REFUSED = range(400, 500)
OK = range(200, 201)
CLASSIFY = "tfs-model-name=regress_classify,tfs-method=classify,tfs-signature-name=classify_x_to_y"


@dataclass(frozen=True, slots=True)
class Sent:
    kind: str
    body: bytes
    right: range
    attributes: str = "a=b"


MIX = (
    *[Sent("application/json", BODY, OK)] * 8,
    Sent("application/json", b'{"instances": [' + b"1.5," * 100_000 + b"1]}", OK),
    Sent("text/csv", b"1\n2\n3\n", OK),
    Sent("text/csv", b"no,numbers\n", REFUSED),
    Sent("application/json", b'{"instances": [', REFUSED),
    Sent("application/x-npy", corpus.npy()[:-3], REFUSED),
    Sent("application/x-tf-example", b"\xff" * 1000, REFUSED, CLASSIFY),
    Sent("application/json", BODY, REFUSED, "tfs-model-version=x"),
    Sent("application/x-nonsense", BODY, REFUSED),
)


def attack(front: Front, seconds: float) -> Finding:
    """The mix for so long, and the memory of the whole process tree meanwhile."""
    over = threading.Event()
    counts: Counter[str] = Counter()
    threads = [threading.Thread(target=_send, args=(front, over, counts, n)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    samples = _samples(front, seconds)
    over.set()
    for thread in threads:
        thread.join()
    growth = slope(samples)
    minutes, last_half = seconds / 60, samples[len(samples) // 2 :]
    held = f"{min(last_half) / MEGABYTE:,.0f} to {max(last_half) / MEGABYTE:,.0f} MB"
    note = f"{growth:+.2%} over the last half of {minutes:.0f} min, {held}; {dict(counts)}"
    flat = growth < MOST_GROWTH
    return Finding("a soak", front.name, counts.total(), counts["right"] if flat else 0, note)


def _samples(front: Front, seconds: float) -> list[float]:
    samples, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        samples.append(float(anonymous_bytes(front.stack.process.pid)))
        time.sleep(SAMPLE_SECONDS)
    return samples


def slope(samples: Sequence[float]) -> float:
    """By which part of its middle a straight line through the last half of the samples rises."""
    half = np.array(samples[len(samples) // 2 :])
    rise, _ = np.polyfit(np.arange(half.size), half, 1)
    return float(rise * half.size / half.mean())


def _send(front: Front, over: threading.Event, counts: Counter[str], first: int) -> None:
    """The mix in turn, on one kept connection, until it is over."""
    stack = front.stack
    with contextlib.closing(http.client.HTTPConnection(stack.host, stack.port, timeout=60)) as link:
        for sent in itertools.islice(itertools.cycle(MIX), first, None):
            if over.is_set():
                return
            headers = {"Content-Type": sent.kind, "X-Amzn-SageMaker-Custom-Attributes": sent.attributes}
            try:
                link.request("POST", front.post, sent.body, headers)
                reply = link.getresponse()
                reply.read()
                counts["right" if reply.status in sent.right else f"{sent.kind}: {reply.status}"] += 1
            except (OSError, http.client.HTTPException) as error:
                link.close()
                counts[type(error).__name__] += 1
