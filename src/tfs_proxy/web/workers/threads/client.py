"""One client's connection: gunicorn's, with a request that arrives, or an end that the client takes in."""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from gunicorn.workers.gthread import TConn

from tfs_proxy.web.workers.around_requests.boundary import CLIENT_GONE
from tfs_proxy.web.workers.refusals import LATE, Refusal
from tfs_proxy.web.workers.threads.arrival import Arrival
from tfs_proxy.web.workers.threads.framing import id_of

LINGER_SECONDS = 2.0
"""How long a connection that ends reads what its client still sends: unread, it would undo the answer."""

SEND_SECONDS = 60
"""How long a client may take nothing of its answer, as with nginx; a thread waits for it."""

_DISCARD_BYTES = 64 * 1024


class ClientConnection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """``arrival`` is a request that is not whole, ``rest`` what came behind one, ``ends`` the last state."""

    sock: socket.socket
    timeout: float
    arrival: Arrival | None = None
    rest: bytes = b""
    ends = False
    status = CLIENT_GONE
    request_id = reason = ""
    unserved: Callable[[bytes, int, str, str], None] = staticmethod(lambda _head, _status, _id, _reason: None)
    """Gets the head of a request that ends before it is whole, that end's status, its id and its reason."""

    def limit_sending(self, seconds: float = SEND_SECONDS) -> None:
        """Let an answer fail of which the client takes nothing for so long."""
        # The kernel's own limit costs no call for each answer, which Python's timeouts do.
        whole, micros = divmod(int(seconds * 1_000_000), 1_000_000)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, micros))

    def set_timeout(self) -> None:
        """Set until when the client must send: a request, the rest of one, or its end of the connection."""
        if self.ends:
            return
        if self.arrival is None:
            super().set_timeout()
        else:
            self.timeout = self.arrival.deadline

    @property
    def idle(self) -> bool:
        """Whether nothing of a request has come."""
        return self.arrival is None

    def refuse(self, refusal: Refusal) -> None:
        """Answer without waiting for the client to read it."""
        self.status, self.reason = refusal.status, refusal.text
        self.request_id = id_of(self.arrival.head if self.arrival is not None else b"")
        with suppress(OSError):
            self.sock.send(refusal.response(self.request_id), socket.MSG_DONTWAIT)

    def expire(self) -> None:
        """Close, since the client took too long: with 408 if it had begun a request."""
        if self.arrival is not None:
            self.refuse(LATE)
        self.close()

    def close(self, graceful: bool = False) -> None:
        """As in the base; a request that was arriving is forgotten."""
        self._forget_arrival()
        super().close(graceful)

    def _forget_arrival(self) -> None:
        if self.arrival is not None:
            head = self.arrival.head
            self.unserved(head, self.status, self.request_id or id_of(head), self.reason)
            self.arrival.close()
            self.arrival = None

    def begin_end(self) -> bool:
        """Send no more; whether the client may still send, and has `LINGER_SECONDS` for it."""
        self._forget_arrival()
        self.ends = True
        self.timeout = time.monotonic() + LINGER_SECONDS
        try:
            self.sock.setblocking(False)
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return self.discard()

    def discard(self) -> bool:
        """Read away what the client sends; whether more may come."""
        try:
            while self.sock.recv(_DISCARD_BYTES):
                if time.monotonic() > self.timeout:
                    return False
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False
