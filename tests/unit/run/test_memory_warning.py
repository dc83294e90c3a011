"""The warning before a generation loads beside the one that serves."""

import pytest
from msgspec.structs import replace

from tfs_proxy.run import generation
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import MODEL_FACTOR, WORKER_BYTES, MemoryLeft

MODELS_BYTES = 100 * MEGABYTE
WANTED_BYTES = MODEL_FACTOR * MODELS_BYTES + 2 * WORKER_BYTES


@pytest.mark.parametrize(
    ("left", "warns"),
    [
        pytest.param(MemoryLeft(WANTED_BYTES * 2, WANTED_BYTES), False, id="just enough"),
        pytest.param(MemoryLeft(WANTED_BYTES * 2, WANTED_BYTES - MEGABYTE), True, id="a megabyte short"),
        pytest.param(None, False, id="unknown"),
    ],
)
def test_memory_for_two_is_told_to_be_short_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, left: MemoryLeft | None, warns: bool
) -> None:
    """The sentence has what is wanted, models and workers, and what is free."""
    monkeypatch.setattr(generation, "memory_left", lambda: left)
    settings = Settings.from_env({"SAGEMAKER_GUNICORN_WORKERS": "2"})
    settings = settings.with_values(machine=replace(settings.machine, models_bytes=MODELS_BYTES))

    warning = generation.memory_warning(settings)

    assert (warning is not None) == warns
    if warning is not None:
        assert "may take 500 MB (the models count as 2 x 100 MB), and 499 MB are free" in warning
