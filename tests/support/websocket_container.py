"""A container for bidirectional streams, in threads of the test: it sends back what it gets, or does what it is told."""

import contextlib
import threading
from collections.abc import Iterator
from http import HTTPStatus

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

NO_STREAMS = "/no-streams"


def _answer(connection: ServerConnection, request: Request) -> Response | None:
    """Pings, and a path that takes no WebSocket."""
    if "Upgrade" not in request.headers:
        return connection.respond(HTTPStatus.OK, "")
    return connection.respond(HTTPStatus.NOT_FOUND, "no streams here") if request.path == NO_STREAMS else None


def _talk(connection: ServerConnection) -> None:
    for message in connection:
        if message == "close with 1011":
            connection.close(1011, "the script failed")
        elif message == "close with 1000":
            connection.close(1000)
        elif message == "break off":
            connection.socket.close()
        elif message == "in pieces":
            connection.send(["one ", "two"])
        elif message == "path":
            assert connection.request is not None
            connection.send(connection.request.path)
        else:
            connection.send(message)


@contextlib.contextmanager
def websocket_container() -> Iterator[str]:
    """Its address, as CreateModel takes it in the place of an image."""
    with serve(_talk, "127.0.0.1", 0, process_request=_answer) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            serving.join()
