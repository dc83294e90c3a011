"""Which variant, and which of its instances, a request goes to: pure."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from tfs_proxy.endpoint.description.values import RANDOM


class Weighted(Protocol):
    """What has a share of the requests."""

    @property
    def weight(self) -> float:
        """Its share, relative to the others'."""


class Busy(Protocol):
    """What answers several requests at once."""

    @property
    def outstanding(self) -> int:
        """How many it answers now."""


SomeWeighted = TypeVar("SomeWeighted", bound=Weighted)
SomeBusy = TypeVar("SomeBusy", bound=Busy)


def by_weight(variants: Sequence[SomeWeighted], draw: random.Random) -> SomeWeighted:
    """One of the variants, each as often as its share of the sum of all weights; the first if all are 0."""
    total = sum(variant.weight for variant in variants)
    if total <= 0:
        return variants[0]
    (chosen,) = draw.choices(variants, weights=[variant.weight for variant in variants])
    return chosen


def instance_for(strategy: str, instances: Sequence[SomeBusy], draw: random.Random) -> SomeBusy:
    """Any instance by the strategy RANDOM, else one of those that answer the fewest requests now."""
    if strategy == RANDOM:
        return draw.choice(instances)
    fewest = min(instance.outstanding for instance in instances)
    return draw.choice([instance for instance in instances if instance.outstanding == fewest])
