"""The user's inference.py, from its path to an object with its handlers: once per worker, at start."""

import hashlib
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tfs_proxy.errors import ScriptLoadError
from tfs_proxy.script.origin import own_line, own_report

log = logging.getLogger(__name__)

Handler = Callable[[Any, Any], Any]
HANDLERS = ("handler", "input_handler", "output_handler")


@dataclass(frozen=True, slots=True)
class Script:
    """A loaded inference.py: its path, those of AWS's three functions that it defines, and two of ours.

    ``handler`` answers a request alone and wins over the other two (contract 2.5).
    ``input_handler`` makes the model server's request, ``output_handler`` the client's answer; where
    only one of them is there, the other half is the conversion that models without a script get.
    ``init(context)`` is called once in each worker before its first request, ``close()`` after its last.
    """

    path: str
    handler: Handler | None = None
    input_handler: Handler | None = None
    output_handler: Handler | None = None
    init: Callable[[Any], Any] | None = None
    close: Callable[[], Any] | None = None


def load_script(path: str, import_paths: Sequence[str] = ()) -> Script:
    """Import the script at ``path``, with ``import_paths`` in front of everything else that imports see.

    Raises ScriptLoadError where it can't be imported (its traceback is in the log) or defines no
    handler.
    """
    # The model's folder is the user's, and often read-only: no __pycache__ appears in it.
    sys.dont_write_bytecode = True
    _put_in_front(import_paths)
    module = _import(path)
    found = {name: getattr(module, name, None) for name in HANDLERS}
    for name, function in found.items():
        if function is not None and not callable(function):
            raise ScriptLoadError(f"{path}: {name} is no function but {type(function).__name__}.")
    if not any(found.values()):
        raise ScriptLoadError(
            f"{path} defines no handler: it must define handler(data, context), "
            "or input_handler(data, context) and output_handler(response, context)."
        )
    return Script(
        path, **found, init=_own_function(module, "init", 1), close=_own_function(module, "close", 0)
    )


def _own_function(module: ModuleType, name: str, arguments: int) -> Callable[..., Any] | None:
    """A function that the script defines itself and that takes so many arguments.

    Anything else of that name is an old script's own business: an import, or a helper of another shape.
    """
    function = getattr(module, name, None)
    if not inspect.isfunction(function) or function.__module__ != module.__name__:
        return None
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        wanted = f"{name}(context)" if arguments else f"{name}()"
        log.warning("%s: its %s is not called, as it can't be called as %s", module.__file__, name, wanted)
        return None
    return function


def _put_in_front(import_paths: Sequence[str]) -> None:
    missing = [path for path in import_paths if path not in sys.path]
    sys.path[:0] = missing
    importlib.invalidate_caches()


def module_name(path: str) -> str:
    """The name that the script at ``path`` is imported under: its own, so that several can be loaded."""
    return f"inference_{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def _import(path: str) -> ModuleType:
    name = module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ScriptLoadError(f"{path} can't be imported: there is no Python file of that name.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, pickle and typing.get_type_hints look a class's module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SystemExit) and type(error) is not SystemExit:
            raise  # the worker's own end, which arises in whatever code runs
        log.error("%s can't be imported:\n%s", path, own_report(error, path))  # noqa: TRY400 - trimmed
        raise ScriptLoadError(f"{path} can't be imported: {own_line(error, path, 'import')}") from None
    return module
