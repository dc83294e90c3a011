"""Runs something as soon as a script, or what it imports, has imported a module."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` after the import of the top-level module ``name``; now if it has been imported."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Watched(name, then))


class _Watched(MetaPathFinder):
    """Leaves the module to the other finders, and has its loader call ``then``.

    It stays in its place, since other threads may be going through the finders.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        self._is_finding = False

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, if it is the module."""
        if fullname != self._name or self._is_finding:  # Python holds a lock for each module's name
            return None
        self._is_finding = True
        try:
            spec = find_spec(fullname)
        finally:
            self._is_finding = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_then(module: ModuleType) -> None:
                load(module)
                self._then()

            spec.loader.exec_module = load_then  # type: ignore[method-assign]  # each spec has its own loader
        return spec
