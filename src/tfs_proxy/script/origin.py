"""Where in the script an error comes from: read from its traceback, for the log alone."""

import os
import re
import traceback
from types import TracebackType

_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^/\s'\"<>]+/)+(?=[^/\s'\"<>])")
"""The folders of an absolute path, up to its last name; an address like http://a/b is none."""


def error_text(error: BaseException) -> str:
    """What ``error`` says, or the name of its class where it says nothing or can't."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a script's exception may have a faulty __str__
        text = ""
    return text or type(error).__name__


def client_text(error: BaseException) -> str:
    """`error_text` with the folders of absolute paths left out: where files lie is no client's business."""
    return _FOLDERS.sub("", error_text(error))


def own_traceback(error: BaseException, path: str) -> TracebackType | None:
    """The traceback of ``error`` from the first frame in the script ``path`` on, or None."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != path:
        found = found.tb_next
    return found


def own_report(error: BaseException, path: str) -> str:
    """The printed traceback of ``error``, without the frames that lead to the script."""
    lines = traceback.format_exception(type(error), error, own_traceback(error, path))
    return _printable("".join(lines).rstrip())


def own_line(error: BaseException, path: str, function: str) -> str:
    """The script's innermost line, as in ``inference.py:42 in input_handler: ValueError: no image``."""
    place = f"{os.path.basename(path)} in {function}"  # noqa: PTH119 - a name for the log, no file access
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == path:
            place = f"{os.path.basename(path)}:{frame.lineno} in {frame.name}"  # noqa: PTH119
    return _printable(f"{place}: {type(error).__name__}: {error_text(error)}")


def _printable(text: str) -> str:
    """``text`` as any UTF-8 log can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()
