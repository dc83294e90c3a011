"""What is installed for a script, as argv, without running anything."""

import sys
from pathlib import Path

import pytest

from tfs_proxy.errors import RequirementsError
from tfs_proxy.layout import ModelLayout, Workspace
from tfs_proxy.supervisor.programs.packages import Install, plan_install


def model_with(root: Path, *names: str, script: str = "inference.py") -> ModelLayout:
    layout = ModelLayout(root / "model")
    layout.code.mkdir(parents=True)
    for name in (script, *names):
        if name.endswith("/"):
            (layout.code / name).mkdir()
        else:
            (layout.code / name).write_text("numpy\n")
    return layout


def plan(layout: ModelLayout, pip: bool = True, uv: str | None = None) -> Install | None:
    return plan_install(layout, Workspace(Path("/run")), lambda _: object() if pip else None, lambda _: uv)


def test_nothing_without_requirements(tmp_path: Path) -> None:
    """A script alone needs no overlay."""
    assert plan(model_with(tmp_path)) is None


def test_nothing_without_a_script(tmp_path: Path) -> None:
    """Requirements of nothing are not worth a wait."""
    assert plan(model_with(tmp_path, "requirements.txt", script="other.py")) is None


def test_nothing_where_lib_is(tmp_path: Path) -> None:
    """AWS's rule: code/lib replaces the installation."""
    assert plan(model_with(tmp_path, "requirements.txt", "lib/")) is None


def test_pip_installs_into_the_overlay(tmp_path: Path) -> None:
    """The installer runs from the running environment and works on the overlay's interpreter."""
    layout = model_with(tmp_path, "requirements.txt")
    install = plan(layout)
    assert install is not None
    (argv,) = install.attempts
    assert argv[:6] == (sys.executable, "-P", "-m", "pip", "--python", "/run/packages/bin/python")
    assert argv[-2:] == ("--requirement", str(layout.requirements))
    assert install.site_packages.is_relative_to("/run/packages")
    assert install.folder == layout.code


def test_wheels_are_tried_alone_first(tmp_path: Path) -> None:
    """Without a network the wheels do; with one the index fills what they lack."""
    layout = model_with(tmp_path, "requirements.txt", "wheels/")
    install = plan(layout)
    assert install is not None
    offline, online = install.attempts
    assert "--no-index" in offline
    assert "--no-index" not in online
    assert str(layout.wheels) in offline
    assert str(layout.wheels) in online


def test_uv_stands_in_for_pip(tmp_path: Path) -> None:
    """A running environment made by uv has no pip."""
    install = plan(model_with(tmp_path, "requirements.txt"), pip=False, uv="/bin/uv")
    assert install is not None
    assert install.attempts[0][:3] == ("/bin/uv", "pip", "install")


def test_neither_pip_nor_uv(tmp_path: Path) -> None:
    """The error says what to do."""
    with pytest.raises(RequirementsError, match=r"neither pip nor uv .* code/lib"):
        plan(model_with(tmp_path, "requirements.txt"), pip=False)
