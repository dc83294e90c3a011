"""Asks an embedded server over REST, for tests of it as a process."""

import http.client
import json
from collections.abc import Callable
from typing import Any

from support.model_fixtures import EmbeddedServer


def ask(
    server: EmbeddedServer,
    path: str,
    body: Any = None,
    *,
    method: str = "",
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, dict[str, str]]:
    """One request: a body makes it a POST, anything but bytes goes as JSON."""
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    try:
        connection.request(method or ("GET" if raw is None else "POST"), path, raw, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read(), {name.lower(): value for name, value in reply.getheaders()}
    finally:
        connection.close()


def predict(server: EmbeddedServer, model: str, document: Any) -> Any:
    """What a predict request is answered with, be it an error."""
    return json.loads(ask(server, f"/v1/models/{model}:predict", document)[1])


def predicted(server: EmbeddedServer, model: str, rows: list[Any]) -> Any:
    """The predictions for some rows."""
    status, body, _ = ask(server, f"/v1/models/{model}:predict", {"instances": rows})
    assert status == 200, body
    return json.loads(body)["predictions"]


def available(server: EmbeddedServer, model: str, version: int | None = None) -> Callable[[], bool]:
    """A condition: this version is available, or any where none is named."""
    return lambda: "AVAILABLE" in server.state(model, version)
