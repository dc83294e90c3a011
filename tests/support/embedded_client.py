"""Asks an embedded server over REST, for tests of it as a process."""

import json
from typing import Any

from support.model_fixtures import EmbeddedServer

ANSWER_SECONDS = 240.0
"""Less than a test may take; some of them send several times 100 MB at once."""


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
    method = method or ("GET" if raw is None else "POST")
    answer = server.ask(method, path, raw, headers, timeout=ANSWER_SECONDS)
    return answer.status, answer.body, dict(answer.headers)


def predict(server: EmbeddedServer, model: str, document: Any) -> Any:
    return json.loads(ask(server, f"/v1/models/{model}:predict", document)[1])


def predicted(server: EmbeddedServer, model: str, rows: list[Any]) -> Any:
    status, body, _ = ask(server, f"/v1/models/{model}:predict", {"instances": rows})
    assert status == 200, body
    return json.loads(body)["predictions"]
