"""Many models at once, as `make bench-multi-model` loads ten times as many."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, serving_many

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
LOADS_AT_ONCE = 4


def load_and_ask_all(stack: MultiModelStack, names: Sequence[str], archive: Path) -> None:
    """Load models, some at a time, ask each in two formats, and unload them."""
    with ThreadPoolExecutor(LOADS_AT_ONCE) as pool:
        assert {answer.status for answer in pool.map(lambda name: stack.load(name, archive), names)} == {200}
        assert sorted(stack.urls()) == sorted(names)
        asked = pool.map(
            lambda name: stack.invoke_model(name, '{"instances": [1.0]}', "application/json"), names
        )
        assert [answer.json for answer in asked] == [{"predictions": [2.5]}] * len(names)
        asked = pool.map(lambda name: stack.invoke_model(name, "1.0", "text/csv"), names)
        assert [answer.json for answer in asked] == [{"predictions": [2.5]}] * len(names)
        assert {answer.status for answer in pool.map(stack.unload, names)} == {200}
    assert stack.urls() == {}


def test_forty_models_without_a_script(saved_models: Path) -> None:
    """Each answers by both ways, and is gone after its unload."""
    with serving_many("--model-server", "embedded") as stack:
        names = [f"m{number}" for number in range(40)]
        load_and_ask_all(stack, names, saved_models / "half_plus_two")
