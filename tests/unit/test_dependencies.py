"""Packages that the code imports are asked for: an image or environment without extras has all that it needs."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tfs_proxy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_EXTRAS = (
    "embedded/",
    "observe/spans.py",
    "tools/export/",
    "transform/ray_cluster.py",
    "worker/gunicorn_workers/gevent.py",
)
"""Modules that are imported only where an extra or TensorFlow is installed."""


def imported_at_once(path: Path) -> Iterator[str]:
    """Top-level packages that a module imports when it is imported itself, and not later or for types alone."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_modules_import_only_what_the_package_depends_on() -> None:
    """Where an extra is needed, its packages are imported in the functions that need them."""
    asked = {re.split(r"[<>=;\[ ]", line)[0] for line in PROJECT["dependencies"]} | {"botocore"}
    of = packages_distributions()
    missing = {
        (str(path.relative_to(SOURCES)), name)
        for path in SOURCES.rglob("*.py")
        if not str(path.relative_to(SOURCES)).startswith(OF_EXTRAS)
        for name in imported_at_once(path)
        if name in of
        and name != "tfs_proxy"
        and not asked & {found.lower().replace("_", "-") for found in of[name]}
    }
    assert missing == set()
