"""nginx and the workers divide the sampling: together they come to the share that was asked for."""

import pytest

from tfs_proxy.deployment import TraceSampling
from tfs_proxy.observe.tracing.share import is_divided, kept_share, marked_share


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01, 0.0001, 0.00001, 0.12345, 0.07, 0.57])
def test_both_shares_together_are_the_one_asked_for(share: float) -> None:
    """nginx takes hundredths of a percent, and never less than is wanted."""
    sampling = TraceSampling(share)

    assert marked_share(sampling) >= share
    assert marked_share(sampling) * 10_000 == pytest.approx(round(marked_share(sampling) * 10_000))
    assert marked_share(sampling) * kept_share(sampling) == pytest.approx(share)


@pytest.mark.parametrize("share", [0.5, 0.01, 0.07, 0.57, 0.0001])
def test_a_worker_keeps_all_of_a_share_that_nginx_can_count(share: float) -> None:
    """1 % is 1 %, without a second throw of the dice."""
    assert kept_share(TraceSampling(share)) == 1.0


def test_all_or_nothing_is_not_divided() -> None:
    """Then there is no mark."""
    assert [is_divided(TraceSampling(share)) for share in (0.0, 0.5, 1.0)] == [False, True, False]
