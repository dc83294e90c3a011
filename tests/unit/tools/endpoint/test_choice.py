"""Which container a definition means, and which instance gets a request."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from tfs_proxy.tools.endpoint.instances import instance_for
from tfs_proxy.tools.endpoint.operations import LEAST_OUTSTANDING, RANDOM, ContainerDefinition, HostedModel
from tfs_proxy.tools.endpoint.starter import (
    DockerImage,
    Ours,
    Running,
    choice_for,
    parse_choices,
    unused_choices,
)
from tfs_proxy.values.errors import SettingsError


def definition(image: str | None, name: str = "primary") -> ContainerDefinition:
    return ContainerDefinition(name, image, None, many_models=False, caches_models=True, environment={})


def test_command_line_says_it_by_hostname_before_the_model_s_name() -> None:
    choices = parse_choices(["m=local", "a=http://localhost:8080", "b=image:1"])

    assert choice_for("m", definition("x", "a"), choices) == Running("localhost", 8080)
    assert choice_for("m", definition("x", "b"), choices) == DockerImage("image:1")
    assert choice_for("m", definition("http://x:1"), choices) == Ours()
    assert choice_for("m", definition("http://host"), {}) == Running("host", 80)


def test_names_of_the_command_line_that_nothing_has() -> None:
    choices = parse_choices(["m=local", "first=local", "frist=local"])
    model = HostedModel("m", (definition(None, "first"),))

    assert unused_choices(choices, [model]) == ["frist"]


@pytest.mark.parametrize("words", ["a", "=local", "a=", "a=http://", "a=http://h:x", "a=http://h/path"])
def test_unusable_words_are_refused(words: str) -> None:
    with pytest.raises(SettingsError, match="can't be used"):
        parse_choices([words])


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
