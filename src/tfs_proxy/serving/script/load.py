"""Loading of a script, and the place in it that an error comes from, read from the traceback."""

import hashlib
import importlib
import importlib.util
import inspect
import linecache
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfs_proxy.model.openapi.description import Description, importing
from tfs_proxy.model.script_syntax import (
    HANDLERS,
    HEALTH,
    PARAMETERS,
    STREAMS,
    form_of,
    no_handler,
)
from tfs_proxy.values.errors import ScriptLoadError
from tfs_proxy.values.layout import SAGEMAKER_MODEL_DIR
from tfs_proxy.values.names import utf8
from tfs_proxy.wire.error_body import error_text

if TYPE_CHECKING:
    from tfs_proxy.serving.script.typed import DeclaredBody

log = logging.getLogger(__name__)

Handler = Callable[[Any, Any], Any]

_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^/\s'\"<>]+/)+(?=[^/\s'\"<>])")
"""Folders of an absolute path, up to its last name; an address like http://a/b is none."""


_OF_ONE_THREAD = re.compile(
    "SQLite objects created in a thread|only works in main thread|There is no current event loop in thread"
)


def _named(error: BaseException) -> str:
    """Class and text of an exception, ``KeyError: 'customer_id'``."""
    name = type(error).__name__
    text = _text(error)
    return f"{name}: {text}" if text else name


def _remedy(error: BaseException, script: str, shown: Callable[[Path], str]) -> str:
    """Name the remedy for an error that scripts moved from AWS's container often meet, or nothing."""
    text = _text(error)
    if _OF_ONE_THREAD.search(text):
        return (
            " (requests come in several threads; SAGEMAKER_GUNICORN_WORKER_CLASS=sync, which multi-model "
            "mode does not have, gives them one)"
        )
    if isinstance(error, ModuleNotFoundError):
        return " (add its package to code/requirements.txt, or put the module into code/)"
    if not isinstance(error, FileNotFoundError) and "No such file" not in text:
        return ""
    root = Path(script).parent.parent
    if f"{SAGEMAKER_MODEL_DIR}/" in text and root != SAGEMAKER_MODEL_DIR:
        is_sibling = root == SAGEMAKER_MODEL_DIR.parent
        folder = "" if is_sibling else f"{shown(root)}, which is Path(__file__).parents[1] and "
        return f" (the model's folder here is {folder}context.model_dir in a handler)"
    name = getattr(error, "filename", None)
    frames = traceback.extract_tb(error.__traceback__)
    is_program = bool(frames) and frames[-1].filename.endswith("/subprocess.py")
    if isinstance(name, (str, os.PathLike)) and not os.path.isabs(name) and not is_program:  # noqa: PTH117
        here = shown(Path.cwd())
        return f" (relative paths begin at {here}, and the script's folder is Path(__file__).parent)"
    return ""


def client_text(error: BaseException, script: str) -> str:
    """Text of a script's exception, and a remedy, for the client: absolute paths without their folders.

    Clients do not learn the paths of files. A script may raise the body of the model server's error,
    ``{"error": words}``: then it is the words alone.
    """
    words = error_text(_text(error).encode("utf-8", "replace"))
    if words is not None:
        return _FOLDERS.sub("", utf8(words))
    named = _FOLDERS.sub("", utf8(_named(error)))
    return named + _remedy(error, script, lambda _folder: "another folder")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a script's exception may have a faulty __str__
        return ""


def own_report(error: BaseException, path: str) -> str:
    """Print the traceback of ``error`` from the first frame in the script on."""
    traceback_part = error.__traceback__
    while traceback_part is not None and traceback_part.tb_frame.f_code.co_filename != path:
        traceback_part = traceback_part.tb_next
    lines = traceback.format_exception(type(error), error, traceback_part)
    return utf8("".join(lines).rstrip())


def own_line(error: BaseException, path: str, function: str) -> str:
    """Innermost line of the script, as in ``inference.py:42 in input_handler: ValueError: no image``."""
    location = f"{os.path.basename(path)} in {function}"  # noqa: PTH119 - a name for the log, no file access
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == path:
            location = f"{os.path.basename(path)}:{frame.lineno} in {frame.name}"  # noqa: PTH119
    return utf8(f"{location}: {_named(error)}{_remedy(error, path, str)}")


class LoadedScript(Struct, frozen=True):
    """Parts that both kinds of scripts have; None for each that a script does not define."""

    path: str
    """Path of the file."""

    close: Callable[[], Any] | None = None
    """Function without arguments that is called in each worker after its last request."""

    health: Callable[[Any], Any] | None = None
    """Function of a context that says if the script can serve."""

    body: "DeclaredBody | None" = None
    """Type of the object that the function which gets the body takes instead."""

    description: Description | None = None
    """Description of its bodies."""


class Script(LoadedScript, frozen=True):
    """Loaded inference.py: those of AWS's three functions that it defines, and ours; None for the others.

    If only one of ``input_handler`` and ``output_handler`` is there, the other half is the conversion that
    models without a script get.
    """

    handler: Handler | None = None
    """Function that answers a request alone, and wins over the other two
    (docs/reference/aws-container.md)."""

    input_handler: Handler | None = None
    """Function that makes the model server's request."""

    output_handler: Handler | None = None
    """Function that makes the client's answer."""

    init: Callable[[Any], Any] | None = None
    """Function of a context that is called once in each worker, before its first request."""

    @property
    def body_reader(self) -> Handler | None:
        """Function that gets the body of each request."""
        return self.handler or self.input_handler

    @property
    def reads_in_parts(self) -> bool:
        """True if that function says that it reads bodies in parts.

        Raises ScriptLoadError for an ``async def``: its reads would stop the event loop of all requests.
        """
        function = self.body_reader
        if function is None or not getattr(function, STREAMS, False):
            return False
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ScriptLoadError(
                f"{self.path}: {function.__name__} is an async def, and can't read bodies in parts: "
                "make it a def, or remove what sets its streams."
            )
        return True


def load_script(path: str, import_paths: Sequence[str] = ()) -> Script:
    """Import the script at ``path``, with ``import_paths`` before all other folders of imports.

    Raises ScriptLoadError if it can't be imported, defines no handler, or one that can't be called.
    """
    # It needs formats, which gunicorn's master must not import if the model brings packages of theirs.
    from tfs_proxy.serving.script.typed import declared_body, description_of

    with importing(Path(path)) as described:
        module = import_script(path, import_paths)
    handlers = {name: function_of(module, name) for name in HANDLERS}
    others = own_members(module)
    if not any(handlers.values()):
        functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        raise ScriptLoadError(no_handler(path, vars(module), functions))
    called = HANDLERS[:1] if handlers["handler"] else HANDLERS[1:]
    for name in called:
        _check_arguments(module, name, handlers[name])
    body = declared_body(path, called[0], handlers[called[0]])
    return Script(
        path,
        **handlers,
        **others,
        init=own_function(module, "init"),
        body=body,
        description=description_of(described.description, body, handlers[called[-1]]),
    )


def import_script(path: str, import_paths: Sequence[str] = ()) -> ModuleType:
    """Import the script at ``path`` under a name of its own; raises ScriptLoadError if that fails."""
    # The model's folder is the user's, and often read-only: no __pycache__ appears in it.
    sys.dont_write_bytecode = True
    sys.path[:0] = [folder for folder in import_paths if folder not in sys.path]
    # Not importlib.invalidate_caches(), which writes to the caches of all paths: 0.7 MB for each worker
    # that shares them with gunicorn's master.
    for folder in import_paths:
        sys.path_importer_cache.pop(folder, None)
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
            raise  # the worker's own end, which may be raised in any code
        raise ScriptLoadError(
            f"{path} can't be imported: {own_line(error, path, 'import')}",
            report=own_report(error, path),
            missing=(error.name or "") if isinstance(error, ImportError) else "",
        ) from None
    # Tracebacks read files, which may change later: so the lines of the script's modules are kept.
    files = [getattr(each, "__file__", None) or "" for each in list(sys.modules.values())]
    for source in (
        file for file in files if file.startswith(f"{Path(path).parent}/") and file.endswith(".py")
    ):
        lines = linecache.getlines(source)
        # Without a time of change the entry is never compared with the file.
        linecache.cache[source] = (sum(map(len, lines)), None, lines, source)
    return module


def function_of(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """Function called ``name``, None if the script has none; raises ScriptLoadError for anything else."""
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is not None and not callable(function):
        raise ScriptLoadError(f"{module.__file__}: {name} is not a function, but {type(function).__name__}.")
    return function


def _check_arguments(module: ModuleType, name: str, function: Handler | None) -> None:
    """Raise ScriptLoadError if a handler can't be called with its arguments."""
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
    """True if ``count`` positional arguments are enough, and not too many."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def own_members(module: ModuleType) -> Mapping[str, Any]:
    """Find the functions that both kinds of scripts may have."""
    return {name: own_function(module, name) for name in ("close", HEALTH)}


def own_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """Function that the script defines itself and that takes the arguments of its name.

    Anything else of that name is an old script's own business: an import, or a helper of another shape.
    """
    function = getattr(module, name, None)
    own = function if inspect.isfunction(function) and function.__module__ == module.__name__ else None
    if own is not None and takes(signature := inspect.signature(own), len(PARAMETERS[name])):
        first = next(iter(signature.parameters), "").lstrip("_")
        if name != HEALTH or first in PARAMETERS[HEALTH]:
            return own
    if own is not None or (name == HEALTH and function is not None):
        wanted = form_of(name)
        log.warning("%s: its %s is not called, because it is not its own %s", module.__file__, name, wanted)
    return None


def module_name(path: str) -> str:
    """Module name that the script at ``path`` is imported under: its own, so that several can be loaded.

    It is the file's name if an import would find it by that, as in processes that ``multiprocessing`` spawns.
    """
    name = Path(path).stem
    spec = None if name in sys.modules else PathFinder.find_spec(name)
    if spec is not None and spec.origin == path:
        return name
    return f"inference_{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` after the import of the top-level module ``name``; now if it has been imported."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Watched(name, then))


class _Watched(MetaPathFinder):
    """Finder that leaves the module to the other finders, and has its loader call ``then``.

    It stays in its place, since other threads may be going through the finders.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        self._is_finding = False

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Ask the other finders, if it is the module."""
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
