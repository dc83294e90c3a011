"""What is run as soon as a module has been imported."""

import importlib
import sys
from pathlib import Path

import pytest

from tfs_proxy.script.load import when_imported

NAME = "module_that_is_watched"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that can be imported, and has not been."""
    (tmp_path / f"{NAME}.py").write_text("value = 1\nis_there = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(sys.modules, NAME, None)  # so that it is forgotten afterwards
    monkeypatch.delitem(sys.modules, NAME)
    return NAME


def test_it_runs_once_the_module_is_whole(module: str) -> None:
    """What imported the module finds what was changed there."""
    seen = []

    def then() -> None:
        imported = sys.modules[module]
        seen.append(imported.is_there)
        imported.value = 2  # type: ignore[attr-defined]

    when_imported(module, then)
    assert seen == []
    assert importlib.import_module(module).value == 2
    importlib.import_module(module)
    assert seen == [True]


def test_it_runs_now_if_the_module_is_there(module: str) -> None:
    """Nothing would call it later."""
    importlib.import_module(module)
    seen: list[str] = []
    when_imported(module, lambda: seen.append(module))

    assert seen == [module]


def test_a_module_that_is_not_there_is_missing_as_ever(module: str) -> None:
    """Nothing runs; other modules are imported as ever."""
    seen: list[str] = []
    when_imported("no_module_at_all", lambda: seen.append("run"))

    with pytest.raises(ModuleNotFoundError, match="no_module_at_all"):
        importlib.import_module("no_module_at_all")
    assert importlib.import_module(module).value == 1
    assert seen == []
