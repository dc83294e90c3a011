"""How a run logs: written for its workers, and changed through its control API while it runs."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from tfs_proxy.observe.logs.config import LEVELS, LogConfig, set_level, wants_colour
from tfs_proxy.settings import Settings
from tfs_proxy.wire.error_body import not_allowed
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

PATH = "/log-level"
OK, NOT_FOUND, NOT_ALLOWED = 200, 404, 405


class RunLog:
    """The configuration of the log of a run, in ``path`` for the other processes.

    ``port`` is that on which the run listens, ``stages`` are those of its stages if it is a pipeline.
    """

    def __init__(
        self, path: Path, config: LogConfig, port: Callable[[], int], stages: Sequence[int] = ()
    ) -> None:
        self._path = path
        self._config = config
        self._port = port
        self._stages = stages
        config.save(path)

    def change(self, level: str) -> None:
        """Log from this level on, in this process and in those that follow."""
        self._config = replace(self._config, level=level)
        self._config.save(self._path)
        set_level("info")
        log.info("log level: %s", level)
        set_level(level)

    def respond(self, request: HttpRequest) -> HttpResponse:
        """GET of the level, and PUT of ``/log-level/LEVEL``, as the control API gets them."""
        level = request.path.removeprefix(PATH).removeprefix("/")
        method = "PUT" if level else "GET"
        if request.method != method:
            text = not_allowed(request.method, method)
            return HttpResponse.error(NOT_ALLOWED, text, headers={"Allow": method})
        if level and level not in LEVELS:
            return HttpResponse.error(NOT_FOUND, f"a level is one of {', '.join(LEVELS)}")
        if level:
            self.change(level)
        state = {"port": self._port(), "level": self._config.level, "stages": list(self._stages)}
        return HttpResponse(OK, json.dumps(state).encode())


def log_config(settings: Settings, environ: Mapping[str, str], descriptor: int) -> LogConfig:
    """How all processes log, to this descriptor."""
    coloured = wants_colour(descriptor, environ)
    return LogConfig(settings.log_format, settings.gunicorn_loglevel, coloured, descriptor)
