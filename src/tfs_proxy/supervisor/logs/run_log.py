"""How a run logs, changed through its control API while it runs."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence

from tfs_proxy.observe.logs.config import LEVELS, LogConfig, current_level, set_level, wants_colour
from tfs_proxy.settings import Settings
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import Route

log = logging.getLogger(__name__)

PATH = "/log-level"
OK, NOT_FOUND = 200, 404


class RunLog:
    """The level of the log of this process, which workers get with each answer of the control API.

    ``port`` is that on which the run listens, ``stages`` are those of its stages if it is a pipeline.
    """

    def __init__(self, port: Callable[[], int], stages: Sequence[int] = ()) -> None:
        self._port = port
        self._stages = stages

    def change(self, level: str) -> None:
        """Log from this level on, in this process and in those that follow."""
        set_level("info")
        log.info("log level: %s", level)
        set_level(level)

    @property
    def routes(self) -> Sequence[Route]:
        """The level, and its change, for the control API."""
        return (
            Route(PATH, ("GET",), self._show, inner=True),
            Route(f"{PATH}/(?P<level>.+)", ("PUT",), self._change, inner=True),
        )

    async def _show(self, _: HttpRequest) -> HttpResponse:
        state = {"port": self._port(), "level": current_level(), "stages": list(self._stages)}
        return HttpResponse(OK, json.dumps(state).encode())

    async def _change(self, request: HttpRequest, level: str) -> HttpResponse:
        if level not in LEVELS:
            return HttpResponse.error(NOT_FOUND, f"a level is one of {', '.join(LEVELS)}")
        self.change(level)
        return await self._show(request)


def log_config(settings: Settings, environ: Mapping[str, str], descriptor: int) -> LogConfig:
    """How all processes log, to this descriptor."""
    coloured = wants_colour(descriptor, environ)
    return LogConfig(settings.log_format, coloured, descriptor)
