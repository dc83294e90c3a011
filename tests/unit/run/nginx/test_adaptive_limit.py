"""With an adaptive limit nothing goes past the workers, which hold it."""

import pytest
from msgspec.structs import replace

from support.nginx_config import SERVING, nginx_config


@pytest.mark.parametrize("seconds", [None, 0.05])
def test_inferences_reach_the_model_server_past_the_workers_only_without_a_limit(
    seconds: float | None,
) -> None:
    text = nginx_config(replace(SERVING, adaptive_limit_seconds=seconds))
    assert ("proxy_pass http://models" in text) is (seconds is None)
