"""What --tune makes of its measurements."""

import json
from collections.abc import Mapping

import pytest

from tfs_proxy.transform.job import Job
from tfs_proxy.transform.run import Measurement, advice, best_measurement

BATCHING = {"SAGEMAKER_TFS_ENABLE_BATCHING": "true"}


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ([({}, 1, 10.0), ({}, 2, 19.0), ({}, 4, 19.5)], ({}, 2)),
        ([({}, 1, 10.0), ({}, 2, 20.0), (BATCHING, 16, 30.0)], (BATCHING, 16)),
        ([({}, 8, 29.0), (BATCHING, 2, 30.0)], ({}, 8)),
        ([({}, 1, 0.0)], ({}, 1)),
    ],
)
def test_the_best_is_the_simplest_of_the_fast(
    rates: list[tuple[Mapping[str, str], int, float]], best: tuple[Mapping[str, str], int]
) -> None:
    """Five percent are not worth batching or more requests at once."""
    chosen = best_measurement([Measurement(*rate) for rate in rates])
    assert (chosen.environment, chosen.concurrent) == best


def test_advice() -> None:
    """Environment lines, and job JSON that keeps the job's own variables."""
    text = advice(Job(input="i", output="o", environment={"A": "b"}), Measurement(BATCHING, 4, 10.0))
    assert "SAGEMAKER_TFS_ENABLE_BATCHING=true\n" in text
    assert json.loads(text[text.index("{") :]) == {
        "MaxConcurrentTransforms": 4,
        "Environment": {"A": "b", **BATCHING},
    }
