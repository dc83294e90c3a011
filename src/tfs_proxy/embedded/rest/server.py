"""Runs the REST API on uvicorn, as the flags of the model server say."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress

import uvicorn

from tfs_proxy.embedded import model_config
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.rest.app import RestApp, RestOptions
from tfs_proxy.embedded.rest.connection import RestConnection
from tfs_proxy.protos import MonitoringConfig

BACKLOG = 1024
_METRICS_PATH = "/monitoring/prometheus/metrics"
_MILLIS = 1e3
_DATE_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 600
"""Longer than any proxy in front keeps an idle connection, so that it is never the server that closes.

Within a request nothing may come for as long.
"""


class RestServer(uvicorn.Server):
    """uvicorn for one app, without its own signal handlers: ours stop gRPC too."""

    def __init__(self, app: RestApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=RestConnection,
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )

        self._ending = asyncio.Event()

    def stop(self) -> None:
        """Accept no more, and end once nothing is in flight."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Renew the date of answers each second until `stop`; uvicorn's own loop looks ten times as often."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield


def rest_options(flags: ModelServerFlags) -> RestOptions:
    """What the flags ask of REST. Raises SettingsError if the monitoring file is not valid."""
    path = None
    if flags.monitoring_config_file:
        config = model_config.read_text(flags.monitoring_config_file, MonitoringConfig())
        if config.prometheus_config.enable:
            path = config.prometheus_config.path or _METRICS_PATH
    return RestOptions(
        timeout_seconds=flags.rest_api_timeout_in_ms / _MILLIS if flags.rest_api_timeout_in_ms > 0 else None,
        cors=flags.rest_api_enable_cors_support,
        metrics_path=path,
    )
