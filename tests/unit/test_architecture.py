"""The directions of imports that the design draws, read off every module's own text."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "tfs_proxy"
MODULES = sorted(PACKAGE.rglob("*.py"))
EDGES = {"web", "supervisor", "embedded", "transform", "pipeline"}
BELOW = {"pipeline": {"supervisor"}}
"""An edge that stands on another: a pipeline watches processes as the supervisor of one stack does."""
CORE = {"script", "payload", "upstream", "archive"}
VALUES = {
    *("errors", "settings", "setting_values", "resources"),
    *("layout", "signature", "deployment", "latencies"),
}
VAGUE = {"utils", "util", "common", "manager", "helper", "helpers", "misc"}


def room(module: Path) -> str:
    """The folder below the package, or the module itself."""
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(module: Path) -> Iterator[str]:
    """Full names of everything that a module imports, wherever in its text."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(module: Path) -> set[str]:
    """Rooms of ours that a module imports from."""
    return {name.split(".")[1] for name in imported(module) if name.startswith("tfs_proxy.")}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_imports_run_one_way(module: Path) -> None:
    """Edges never import each other, the core never imports edges, values import only values."""
    here, others = room(module), rooms_imported(module)

    if here in EDGES:
        assert not others & (EDGES - {here} - BELOW.get(here, set()))
    if here in CORE | {"check", "served"}:
        assert not others & EDGES
    if here in VALUES:
        assert others <= VALUES


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_heavy_or_special_libraries_stay_in_their_room(module: Path) -> None:
    """Tensorflow belongs to the embedded server, falcon and gunicorn's classes to web, ray to one engine."""
    roots = {name.split(".")[0] for name in imported(module)}

    if room(module) != "embedded":
        assert "tensorflow" not in roots
    if room(module) != "web":
        assert not roots & {"falcon", "gunicorn"}
    if module.stem != "ray_engine":
        assert "ray" not in roots


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_only_settings_reads_the_environment(module: Path) -> None:
    """Every other room gets what it needs as an argument."""
    reads = [
        node.attr
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "getenv", "environb"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]

    assert module.name == "settings.py" or reads == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_every_module_has_a_name_and_a_sentence(module: Path) -> None:
    """No bag of odds and ends, and the first line says where the module stands."""
    docstring = ast.get_docstring(ast.parse(module.read_text()))

    assert module.stem not in VAGUE
    assert docstring
    assert docstring.splitlines()[0].endswith(".")
