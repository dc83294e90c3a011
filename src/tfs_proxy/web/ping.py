"""GET /ping: what the supervisor says at its control API; nginx asks there itself and never comes here."""

from collections.abc import Callable

import falcon

Ping = Callable[[], tuple[int, bytes]]
"""Ask the control API: HTTP status and body of its answer."""


class PingResource:
    """Relays the supervisor's word: 200 and empty, or 503 and ``{"error": reason}``."""

    method = "GET"

    def __init__(self, ping: Ping) -> None:
        self._ping = ping

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Health of the whole container (docs/reference/sagemaker.md)."""
        resp.status, resp.data = self._ping()
        if not resp.data:
            resp.content_type = None

    on_head = on_get
