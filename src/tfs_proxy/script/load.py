"""The user's inference.py, from its path to an object with its handlers: once per worker, at start."""

import hashlib
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from tfs_proxy.errors import ScriptLoadError
from tfs_proxy.script.contract import HANDLERS, PARAMETERS, form_of, no_handler
from tfs_proxy.script.description import Description, importing
from tfs_proxy.script.tracebacks import own_line, own_report

log = logging.getLogger(__name__)

Handler = Callable[[Any, Any], Any]


class Script(Struct, frozen=True):
    """A loaded inference.py: its path, those of AWS's three functions that it defines, and two of ours.

    ``handler`` answers a request alone and wins over the other two (docs/reference/aws-container.md).
    ``input_handler`` makes the model server's request, ``output_handler`` the client's answer; if
    only one of them is there, the other half is the conversion that models without a script get.
    ``init(context)`` is called once in each worker before its first request, ``close()`` after its last.
    ``description`` is what it says of its bodies.
    """

    path: str
    handler: Handler | None = None
    input_handler: Handler | None = None
    output_handler: Handler | None = None
    init: Callable[[Any], Any] | None = None
    close: Callable[[], Any] | None = None
    description: Description | None = None


def load_script(path: str, import_paths: Sequence[str] = ()) -> Script:
    """Import the script at ``path``, with ``import_paths`` in front of everything else that imports see.

    Raises ScriptLoadError if it can't be imported, defines no handler, or one that can't be called.
    """
    with importing(Path(path)) as described:
        module = import_script(path, import_paths)
    handlers = {name: function_of(module, name) for name in HANDLERS}
    if not any(handlers.values()):
        raise ScriptLoadError(no_handler(path, vars(module), _functions(module)))
    for name in HANDLERS[:1] if handlers["handler"] else HANDLERS[1:]:
        _check_arguments(module, name, handlers[name])
    return Script(
        path,
        **handlers,
        init=own_function(module, "init", 1),
        close=own_function(module, "close", 0),
        description=described.description,
    )


def import_script(path: str, import_paths: Sequence[str] = ()) -> ModuleType:
    """Import the script at ``path`` under a name of its own; raises ScriptLoadError if that fails."""
    # The model's folder is the user's, and often read-only: no __pycache__ appears in it.
    sys.dont_write_bytecode = True
    _put_in_front(import_paths)
    return _import(path)


def function_of(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """What a script calls ``name``, None if it has none; raises ScriptLoadError for anything else."""
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is not None and not callable(function):
        raise ScriptLoadError(f"{module.__file__}: {name} is not a function, but {type(function).__name__}.")
    return function


def _functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if inspect.isfunction(value)]


def _check_arguments(module: ModuleType, name: str, function: Handler | None) -> None:
    """Raise ScriptLoadError if a handler can't be called with what it gets."""
    if function is None:
        return
    try:
        # A decorator may add arguments to those that the function inside it shows.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    count = len(PARAMETERS[name])
    if not takes(signature, count):
        raise ScriptLoadError(
            f"{module.__file__}: {name}{signature} can't be called with {count} positional arguments: "
            f"it must be {form_of(name)}."
        )


def takes(signature: inspect.Signature, count: int) -> bool:
    """Whether ``count`` positional arguments are enough, and not too many."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def own_function(module: ModuleType, name: str, arguments: int) -> Callable[..., Any] | None:
    """A function that the script defines itself and that takes so many arguments.

    Anything else of that name is an old script's own business: an import, or a helper of another shape.
    """
    function = getattr(module, name, None)
    if not inspect.isfunction(function) or function.__module__ != module.__name__:
        return None
    if not takes(inspect.signature(function), arguments):
        wanted = f"{name}(context)" if arguments else f"{name}()"
        log.warning(
            "%s: its %s is not called, because it does not take the arguments of %s",
            module.__file__,
            name,
            wanted,
        )
        return None
    return function


def _put_in_front(import_paths: Sequence[str]) -> None:
    missing = [path for path in import_paths if path not in sys.path]
    sys.path[:0] = missing
    # PERF: not importlib.invalidate_caches(), which writes to the caches of all paths: 0.7 MB for each worker
    # that shares them with gunicorn's master.
    for path in import_paths:
        sys.path_importer_cache.pop(path, None)


def module_name(path: str) -> str:
    """The name that the script at ``path`` is imported under: its own, so that several can be loaded.

    That of its file if an import would find it by that, as processes do that ``multiprocessing`` spawns.
    """
    name = Path(path).stem
    spec = None if name in sys.modules else PathFinder.find_spec(name)
    if spec is not None and spec.origin == path:
        return name
    return f"inference_{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def _import(path: str) -> ModuleType:
    name = module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ScriptLoadError(f"{path} can't be imported: there is no such Python file.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, pickle and typing.get_type_hints look a class's module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SystemExit) and type(error) is not SystemExit:
            raise  # the worker's own end, which arises in whatever code runs
        raise ScriptLoadError(
            f"{path} can't be imported: {own_line(error, path, 'import')}",
            report=own_report(error, path),
            missing=(error.name or "") if isinstance(error, ImportError) else "",
        ) from None
    return module
