"""Configuration of the log: gunicorn and its workers get it in a variable of their environment."""

import json
import logging
import os
from collections.abc import Mapping

from msgspec import Struct, convert, to_builtins

from tfs_proxy.observe.logs.entry import TEXT

LOG_VARIABLE = "TFS_PROXY_LOG"
STDERR = 2
QUIET = ("botocore", "boto3", "s3transfer", "urllib3")
"""Libraries whose debug lines have credentials, headers or the whole request."""


class LogConfig(Struct, frozen=True):
    """Descriptor to write entries to, and their form; a terminal's are ``coloured``."""

    form: str = TEXT
    coloured: bool = False
    descriptor: int = STDERR

    def variable(self) -> dict[str, str]:
        """Variable for the environment of another process."""
        return {LOG_VARIABLE: json.dumps(to_builtins(self))}

    @classmethod
    def inherited(cls, environ: Mapping[str, str]) -> "LogConfig":
        """Read this process's `variable`; the defaults if there is none."""
        return convert(json.loads(environ.get(LOG_VARIABLE, "{}")), cls)


def set_level(level: str, loggers: tuple[str, ...] = ("", "gunicorn.error")) -> None:
    """Log from this level on; libraries that would log credentials stay quiet."""
    for name in loggers:
        logging.getLogger(name or None).setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def wants_colour(descriptor: int, environ: Mapping[str, str]) -> bool:
    """True if a terminal reads from ``descriptor``, and nobody asks for no colour (https://no-color.org)."""
    return os.isatty(descriptor) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
