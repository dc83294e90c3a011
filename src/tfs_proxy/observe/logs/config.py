"""How the processes of a run log, in a file of its workspace: the supervisor writes it, workers follow it."""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, convert, to_builtins

from tfs_proxy.observe.logs.entry import TEXT

STDERR = 2
LEVELS = ("debug", "info", "warning", "error", "critical")
QUIET = ("botocore", "boto3", "s3transfer", "urllib3")
"""Libraries whose debug lines have credentials, headers or the whole request."""


class LogConfig(Struct, frozen=True):
    """``descriptor`` is where entries are written to; a terminal's are ``coloured``."""

    form: str = TEXT
    level: str = "info"
    coloured: bool = False
    descriptor: int = STDERR

    def save(self, path: Path) -> None:
        """Write it at once, so that no reader sees half of it."""
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(to_builtins(self)))
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> "LogConfig":
        """What `save` wrote; the defaults if nothing did."""
        try:
            return convert(json.loads(path.read_text()), cls)
        except FileNotFoundError:
            return cls()


class FollowedLevel:
    """The level in the file of a run, applied to this process whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_ns = _changed_ns(path)

    def follow(self) -> None:
        """Look whether the level has changed; costs one system call if it has not."""
        changed_ns = _changed_ns(self._path)
        if changed_ns != self._read_ns:
            self._read_ns = changed_ns
            set_level(LogConfig.load(self._path).level)


def set_level(level: str, loggers: tuple[str, ...] = ("", "gunicorn.error")) -> None:
    """Log from this level on; libraries that would log credentials stay quiet."""
    for name in loggers:
        logging.getLogger(name or None).setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def reset_logging() -> None:
    """Undo what this process has set, as in a new one."""
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    for name in ("gunicorn.error", *QUIET):
        logging.getLogger(name).setLevel(logging.NOTSET)


def wants_colour(descriptor: int, environ: Mapping[str, str]) -> bool:
    """Whether a terminal reads what is written there, and nobody asks for no colour (https://no-color.org)."""
    return os.isatty(descriptor) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
