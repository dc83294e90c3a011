"""Many models at once, as `make bench-multi-model` loads ten times as many."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import serving_many

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
LOADS_AT_ONCE = 4


def test_forty_models_without_a_script(saved_models: Path) -> None:
    """Loaded some at a time, each answers by both ways, and is gone after its unload."""
    names = [f"m{number}" for number in range(40)]
    asked = (('{"instances": [1.0]}', "application/json"), ("1.0", "text/csv"))
    with serving_many("--model-server", "embedded") as stack, ThreadPoolExecutor(LOADS_AT_ONCE) as pool:
        loads = pool.map(lambda name: stack.load(name, saved_models / "half_plus_two"), names)
        assert {answer.status for answer in loads} == {200}
        assert sorted(stack.urls()) == sorted(names)
        for body, kind in asked:
            answers = pool.map(stack.invoke_model, names, [body] * len(names), [kind] * len(names))
            assert [answer.json for answer in answers] == [{"predictions": [2.5]}] * len(names)
        assert {answer.status for answer in pool.map(stack.unload, names)} == {200}
        assert stack.urls() == {}
