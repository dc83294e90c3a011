"""How nginx and workers divide the sampling between them: nginx marks a share of the requests, at random.

nginx counts in hundredths of a percent. It marks at least as many requests as are wanted, and the worker
takes a part of those: together they come to the share itself.
"""

from math import ceil

from tfs_proxy.deployment import TraceSampling

MARKED, NOT_MARKED = "1", "0"
_STEPS = 10_000


def is_divided(sampling: TraceSampling) -> bool:
    """Whether nginx marks requests; if all or none are traced there is nothing to divide."""
    return 0.0 < sampling.share < 1.0


def marked_share(sampling: TraceSampling) -> float:
    """The share of requests that nginx marks."""
    return ceil(round(sampling.share * _STEPS, 6)) / _STEPS


def kept_share(sampling: TraceSampling) -> float:
    """The share of marked requests that the worker samples."""
    return min(sampling.share / marked_share(sampling), 1.0)
