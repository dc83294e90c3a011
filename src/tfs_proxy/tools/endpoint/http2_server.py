"""HTTP/2 over TLS for bidirectional streams: the library h2 on asyncio, for an ASGI application.

hypercorn, the usual server, ends all streams of a connection if an answer ends before its request, as those
of a container that closes its stream do (docs/explained/decisions.md).
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes

from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.http_server import AsgiApp, Message

log = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
_STREAM_WINDOW, _WINDOW = MEGABYTE, 16 * MEGABYTE
"""Bytes that a stream, and a connection, may be ahead of what the application has taken."""

_END_SECONDS = 1.0


def tls_of(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """``key`` is None if it stands in the certificate's file. Raises SettingsError if they can't be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        files = f"{certificate} and {key}" if key else f"{certificate}"
        raise SettingsError(
            f"--stream-certificate can't be used: {files} must have a certificate and its key as PEM, "
            f"without a password ({error})."
        ) from None
    return context


class Http2Server:
    """Serves ``app`` on ``listener`` from `open` to `drain`."""

    def __init__(self, app: AsgiApp, listener: Listener, tls: ssl.SSLContext) -> None:
        self._app, self._listener, self._tls = app, listener, tls
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listener, ssl=self._tls)

    async def drain(self, seconds: float) -> None:
        """Stops accepting, and waits at most ``seconds`` for calls in flight, which the application ends."""
        if self._server is not None:
            self._server.close()
        calls = [call for connection in self._connections for call in connection.calls.values()]
        if calls:
            await asyncio.wait(calls, timeout=seconds)
        for connection in self._connections:
            connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self._app, reader, writer)
        self._connections.add(connection)
        try:
            await connection.run()
        except (OSError, ProtocolError) as error:
            log.info("a connection for streams broke: %s", error)
        finally:
            self._connections.discard(connection)
            connection.close()


class _Connection:
    """One client's connection; ``calls`` are the tasks of the application, by stream."""

    def __init__(self, app: AsgiApp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._app, self._reader, self._writer = app, reader, writer
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._received: dict[int, asyncio.Queue[Message]] = {}
        self._window = asyncio.Event()
        self.calls: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until the client ends the connection. Raises OSError or ProtocolError if it breaks."""
        self._http.initiate_connection()
        self._http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW})
        self._http.increment_flow_control_window(_WINDOW)
        await self._flush()
        while data := await self._reader.read(_READ_BYTES):
            for event in self._http.receive_data(data):
                if isinstance(event, ConnectionTerminated):
                    return
                self._handle(event)
            await self._flush()

    def close(self) -> None:
        """Ends the connection, and tells its calls that the client has gone."""
        for received in self._received.values():
            received.put_nowait({"type": "http.disconnect"})
        self._window.set()
        self._writer.close()

    def _handle(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=int(number), headers=headers):
                self._received[number] = asyncio.Queue()
                call = asyncio.create_task(self._call(number, headers or []))
                self.calls[number] = call
                call.add_done_callback(lambda _call: self.calls.pop(number))
            case DataReceived(stream_id=int(number), data=data, flow_controlled_length=size):
                self._pass_on(number, {"type": "http.request", "body": data, "more_body": True, "size": size})
            case StreamEnded(stream_id=int(number)):
                self._pass_on(number, {"type": "http.request", "body": b"", "more_body": False})
            case StreamReset(stream_id=int(number)):
                self._pass_on(number, {"type": "http.disconnect"})
                self._window.set()
            case WindowUpdated() | RemoteSettingsChanged():
                self._window.set()

    def _pass_on(self, number: int, message: Message) -> None:
        """Gives it to the call, unless that has been answered: the rest of its body is of no use."""
        if number in self._received:
            self._received[number].put_nowait(message)

    async def _call(self, number: int, headers: Iterable[tuple[Any, Any]]) -> None:
        fields = [(bytes(name), bytes(value)) for name, value in headers]
        known = dict(fields)
        path, _, query = known[b":path"].partition(b"?")
        scope = {
            "type": "http",
            "method": known[b":method"].decode("latin-1"),
            "path": path.decode("latin-1"),
            "query_string": query,
            "headers": [(name, value) for name, value in fields if not name.startswith(b":")],
        }
        try:
            await self._app(scope, partial(self._receive, number), partial(self._send, number))
        finally:
            await self._finish(number)

    async def _finish(self, number: int) -> None:
        """Asks a client that does not end its request soon to stop: the answer is whole (RFC 9113, 8.1)."""
        with contextlib.suppress(OSError, H2Error, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                while (await self._receive(number)).get("more_body", False):
                    pass
        with contextlib.suppress(OSError, H2Error):
            self._http.reset_stream(number, ErrorCodes.NO_ERROR)
            await self._flush()
        self._received.pop(number, None)

    async def _receive(self, number: int) -> Message:
        """The next part of the body; the client may send as much more as the application has taken."""
        message = await self._received[number].get()
        if message.get("size"):
            with contextlib.suppress(H2Error):
                self._http.acknowledge_received_data(message["size"], number)
            await self._flush()
        return message

    async def _send(self, number: int, message: Message) -> None:
        """Waits until the client takes it. Raises OSError if it does not any more."""
        try:
            if message["type"] == "http.response.start":
                status = (b":status", b"%d" % message["status"])
                self._http.send_headers(number, [status, *message["headers"]])
                await self._flush()
            else:
                await self._send_body(number, memoryview(message["body"]))
                if not message.get("more_body", False):
                    self._http.end_stream(number)
                    await self._flush()
        except H2Error as error:
            raise ConnectionResetError(f"the client has ended the stream ({error})") from error

    async def _send_body(self, number: int, data: memoryview) -> None:
        while data:
            size = min(await self._window_of(number), len(data), self._http.max_outbound_frame_size)
            self._http.send_data(number, bytes(data[:size]))
            data = data[size:]
            await self._flush()

    async def _window_of(self, number: int) -> int:
        while not (size := self._http.local_flow_control_window(number)):
            if self._writer.is_closing():
                raise ConnectionError("the client has gone")
            self._window.clear()
            await self._window.wait()
        return size

    async def _flush(self) -> None:
        data = self._http.data_to_send()
        if data and not self._writer.is_closing():
            self._writer.write(data)
        await self._writer.drain()
