"""Modules that may be imported before the fork: none that the model has, too."""

import gc
import sys
from pathlib import Path

import pytest

from tfs_proxy.worker.gunicorn_workers.preload import imported_names, preload


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An import path with a module that does without another one, which is not there."""
    (tmp_path / "asking_module.py").write_text(
        "try:\n    import optional_module\nexcept ImportError:\n    optional_module = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "asking_module", raising=False)
    return tmp_path


def test_a_module_that_is_looked_for_in_vain_counts(modules: Path) -> None:
    """A model that has the module would have had it imported."""
    try:
        assert preload(["asking_module"]) == {"asking_module", "optional_module"}
    finally:
        gc.unfreeze()


def test_what_is_imported_before_counts() -> None:
    """A forked process would not import the model's."""
    assert {"sys", "pytest", "sitecustomize", "setproctitle"} <= imported_names()
