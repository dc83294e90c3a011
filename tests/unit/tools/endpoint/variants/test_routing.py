"""Where a request goes: shares of variants, and instances by strategy."""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tfs_proxy.tools.endpoint.instances import by_weight, instance_for
from tfs_proxy.tools.endpoint.operations import LEAST_OUTSTANDING, RANDOM


@dataclass(frozen=True)
class Thing:
    """A variant with a weight, or an instance with requests."""

    name: str
    weight: float = 0.0
    outstanding: int = 0


def test_variants_get_their_shares() -> None:
    """Three of four requests for a weight three times as large; none for a weight of 0."""
    variants: list[Any] = [Thing("a", 3.0), Thing("b", 1.0), Thing("c", 0.0)]
    draw = random.Random(1)

    chosen = Counter(by_weight(variants, draw).name for _ in range(4000))

    assert 2900 < chosen["a"] < 3100
    assert chosen["c"] == 0
    assert by_weight(variants[:1], draw).name == "a"


def test_least_outstanding_requests_wins_and_random_takes_any() -> None:
    instances: list[Any] = [Thing("busy", outstanding=2), Thing("free"), Thing("idle")]
    draw = random.Random(1)

    least = {instance_for(LEAST_OUTSTANDING, instances, draw).name for _ in range(100)}
    any_of_them = {instance_for(RANDOM, instances, draw).name for _ in range(100)}

    assert least == {"free", "idle"}
    assert any_of_them == {"busy", "free", "idle"}
