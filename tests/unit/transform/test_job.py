"""What a job leaves open: who decides it, and how outputs are called."""

from typing import Any

import pytest

from tfs_proxy.transform.job import ExecutionPlan, Job
from tfs_proxy.transform.s3 import relative_name


def job(**fields: Any) -> Job:
    return Job(**{"input": "in", "output": "out", **fields})


def test_who_decides() -> None:
    """The job, else the container, else the platform's defaults."""
    offered = {"MaxConcurrentTransforms": 8, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 3}
    assert ExecutionPlan.resolve(job(), {}) == ExecutionPlan("MultiRecord", 6 << 20, 1)
    assert ExecutionPlan.resolve(job(), offered) == ExecutionPlan("SingleRecord", 3 << 20, 8)
    whole_job = job(max_concurrent=2, max_payload_mb=1, strategy="MultiRecord")
    assert ExecutionPlan.resolve(whole_job, offered) == ExecutionPlan("MultiRecord", 1 << 20, 2)
    assert ExecutionPlan.resolve(job(max_payload_mb=0), {}).payload_bytes is None
    assert ExecutionPlan.resolve(job(max_payload_mb=50), offered).concurrent == 2
    assert ExecutionPlan.resolve(job(), {"MaxConcurrentTransforms": "many"}).concurrent == 1


@pytest.mark.parametrize(
    ("key", "prefix", "name"),
    [
        ("in/a.csv", "in/a.csv", "a.csv"),
        ("in/a1.csv", "in/a", "a1.csv"),
        ("a.csv", "", "a.csv"),
        ("a.csv", "a", "a.csv"),
    ],
)
def test_names_under_a_prefix(key: str, prefix: str, name: str) -> None:
    """The path below the prefix, and the whole name where the prefix ends inside it."""
    assert relative_name(key, prefix) == name
