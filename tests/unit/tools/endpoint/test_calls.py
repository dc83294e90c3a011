"""Where a request goes, and members that AWS refuses."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from tfs_proxy.tools.endpoint.aws_api import AwsError, given_members
from tfs_proxy.tools.endpoint.instances import instance_for
from tfs_proxy.tools.endpoint.operations import LEAST_OUTSTANDING, RANDOM


@pytest.mark.parametrize(
    ("header", "value", "member"),
    [
        ("x-amzn-sagemaker-custom-attributes", "a" * 1025, "CustomAttributes"),
        ("x-amzn-sagemaker-target-variant", "a_b", "TargetVariant"),
        ("x-amzn-sagemaker-inference-id", "", "InferenceId"),
        ("x-amzn-sagemaker-session-id", "a b", "SessionId"),
    ],
)
def test_values_that_aws_refuses_are_refused(header: str, value: str, member: str) -> None:
    with pytest.raises(AwsError, match=member) as refused:
        given_members("InvokeEndpoint", {header: value})

    assert refused.value.code == "ValidationError"


@dataclass(frozen=True)
class Instance:
    name: str
    outstanding: int = 0


def test_least_outstanding_requests_wins_and_random_takes_any() -> None:
    instances: list[Any] = [Instance("busy", outstanding=2), Instance("free"), Instance("idle")]
    draw = random.Random(1)
    least = {instance_for(LEAST_OUTSTANDING, instances, draw).name for _ in range(100)}
    any_of_them = {instance_for(RANDOM, instances, draw).name for _ in range(100)}
    assert least == {"free", "idle"}
    assert any_of_them == {"busy", "free", "idle"}
