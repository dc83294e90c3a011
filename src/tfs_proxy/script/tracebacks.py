"""Where in the script an error comes from: read from its traceback, for the log alone."""

import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tfs_proxy.layout import SAGEMAKER_MODEL_DIR
from tfs_proxy.script.syntax.one_thread import CURE
from tfs_proxy.wire.error_body import error_text

_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^/\s'\"<>]+/)+(?=[^/\s'\"<>])")
"""The folders of an absolute path, up to its last name; an address like http://a/b is none."""


_OF_ONE_THREAD = re.compile(
    "SQLite objects created in a thread|only works in main thread|There is no current event loop in thread"
)


def described(error: BaseException, script: str) -> str:
    """An exception's class and what it says, ``KeyError: 'customer_id'``, and a remedy if one is known."""
    return _named(error) + _remedy(error, script, str)


def _named(error: BaseException) -> str:
    name, text = type(error).__name__, _text(error)
    return f"{name}: {text}" if text else name


def _remedy(error: BaseException, script: str, shown: Callable[[Path], str]) -> str:
    """Name what helps against an error that scripts moved from AWS's container often meet, or nothing."""
    text = _text(error)
    if _OF_ONE_THREAD.search(text):
        return f" (requests come in several threads; {CURE} gives them one)"
    if isinstance(error, ModuleNotFoundError):
        return " (add its package to code/requirements.txt, or put the module into code/)"
    if not isinstance(error, FileNotFoundError) and "No such file" not in text:
        return ""
    root = Path(script).parent.parent
    if f"{SAGEMAKER_MODEL_DIR}/" in text and root != SAGEMAKER_MODEL_DIR:
        is_beside = root == SAGEMAKER_MODEL_DIR.parent
        folder = "" if is_beside else f"{shown(root)}, which is Path(__file__).parents[1] and "
        return f" (the model's folder here is {folder}context.model_dir in a handler)"
    if _is_relative(error):
        here = shown(Path.cwd())
        return f" (relative paths begin at {here}, and the script's folder is Path(__file__).parent)"
    return ""


def _is_relative(error: BaseException) -> bool:
    """Whether a file was asked for by a relative path, and not a program."""
    name, frames = getattr(error, "filename", None), traceback.extract_tb(error.__traceback__)
    is_program = bool(frames) and frames[-1].filename.endswith("/subprocess.py")
    return isinstance(name, (str, os.PathLike)) and not os.path.isabs(name) and not is_program  # noqa: PTH117


def client_text(error: BaseException, script: str) -> str:
    """What a client reads of a script's exception: `described`, absolute paths without their folders.

    Clients do not learn the paths of files. A script may raise the body of the model server's error,
    ``{"error": words}``: then it is the words alone.
    """
    words = error_text(_text(error).encode("utf-8", "replace"))
    if words is not None:
        return _FOLDERS.sub("", words)
    return _FOLDERS.sub("", _named(error)) + _remedy(error, script, lambda _folder: "another folder")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a script's exception may have a faulty __str__
        return ""


def own_traceback(error: BaseException, path: str) -> TracebackType | None:
    """The traceback of ``error`` from the first frame in the script ``path`` on, or None."""
    traceback_part = error.__traceback__
    while traceback_part is not None and traceback_part.tb_frame.f_code.co_filename != path:
        traceback_part = traceback_part.tb_next
    return traceback_part


def own_report(error: BaseException, path: str) -> str:
    """The printed traceback of ``error``, without the frames that lead to the script."""
    lines = traceback.format_exception(type(error), error, own_traceback(error, path))
    return _printable("".join(lines).rstrip())


def own_line(error: BaseException, path: str, function: str) -> str:
    """The script's innermost line, as in ``inference.py:42 in input_handler: ValueError: no image``."""
    location = f"{os.path.basename(path)} in {function}"  # noqa: PTH119 - a name for the log, no file access
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == path:
            location = f"{os.path.basename(path)}:{frame.lineno} in {frame.name}"  # noqa: PTH119
    return _printable(f"{location}: {described(error, path)}")


def _printable(text: str) -> str:
    """``text`` as any UTF-8 log can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()
