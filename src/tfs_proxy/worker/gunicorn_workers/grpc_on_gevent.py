"""Setting of grpcio that it waits on gevent's loop: with its own, a call stops all other greenlets."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_GRPC = "grpc"


class GrpcOnGevent(MetaPathFinder):
    """Finder that sets up grpc once it is imported: before its first channel."""

    @classmethod
    def install(cls) -> None:
        """Wait for the import, or set up at once if it has been imported."""
        if _GRPC in sys.modules:
            _set_up()
        else:
            sys.meta_path.insert(0, cls())

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the spec of grpc, its loader followed by the set-up; None for any other module."""
        if fullname != _GRPC:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _SettingUp(spec.loader)
        return spec


class _SettingUp(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _set_up()


def _set_up() -> None:
    from grpc.experimental import gevent

    gevent.init_gevent()
