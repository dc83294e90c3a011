"""The toy's HTTP: ping, invocations and the rest; each fault bends one answer."""

import json
import os
import socket
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from support.toy_container.models import ToyModels
from support.toy_container.websocket import STREAM, talk

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
SESSION, NEW_SESSION = "X-Amzn-SageMaker-Session-Id", "X-Amzn-SageMaker-New-Session-Id"
CLOSED_SESSION = "X-Amzn-SageMaker-Closed-Session-Id"
KNOWN = {"host", "content-type", "content-length", "accept", "transfer-encoding", "expect"}
PARAMETERS = {"MaxConcurrentTransforms": 2, "BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 6}
BENT_PARAMETERS: dict[str, dict[str, Any]] = {
    "concurrency-text": {"MaxConcurrentTransforms": "2"},
    "strategy": {"BatchStrategy": "MultiRecord"},
    "payload-200": {"MaxPayloadInMB": 200},
    "product": {"MaxPayloadInMB": 60},
}
PARTS = 3
PART_SECONDS = 0.05
LONG_SECONDS = 0.6
DRAIN_SECONDS = 20.0


class ToyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, fault: str) -> None:
        self.fault = fault
        self.request_queue_size = 1 if fault == "slow-accept" else 256
        self.has_model, self.loaded_at = True, 0.0
        self.is_multi_model = os.environ["SAGEMAKER_MULTI_MODEL"] == "true"
        self.models = ToyModels(fault)
        self.counts: dict[str, int] = {}
        self.sessions: set[str] = set()
        self.closed: set[str] = set()
        self.pings = self.working = 0
        self.lock, self.pinging = threading.Lock(), threading.Lock()
        self.other: socket.socket | None = None
        super().__init__(("127.0.0.1", port), ToyHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each connection; none with the fault that has one worker for all."""
        if self.fault == "slow-accept":
            self.process_request_thread(request, client_address)
        else:
            super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may leave."""

    def wait_for_requests(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.working and time.monotonic() < deadline:
            time.sleep(0.01)


class ToyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ToyServer
    extra: ClassVar[dict[str, str]] = {}

    def log_message(self, *_: object) -> None:
        """Only what is asked for."""

    def do_HEAD(self) -> None:
        status = 501 if self.server.fault == "no-head" else 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self._count(path)
        if "Upgrade" in self.headers:
            self.close_connection = True
            talk(self.connection, self.path, self.headers.items(), self.server.fault)
        elif path == "/ping":
            self._ping()
        elif path == "/metrics" and self.server.fault != "no-metrics":
            self._metrics()
        elif path == "/execution-parameters":
            self._parameters()
        elif path == "/invocations":
            self._error(405, "POST it")
        elif path.startswith("/models") and self.server.is_multi_model:
            self._answer(*self.server.models.get(path))
        elif self.server.fault == "catch-all" or (self.server.fault == "ws-get-is-200" and path == STREAM):
            self._answer(200, {})
        else:
            self._error(404, "no such path")

    def do_DELETE(self) -> None:
        self._answer(*self.server.models.unload(self.path))

    def do_POST(self) -> None:
        server = self.server
        with server.lock:
            server.working += 1
        try:
            body = self._body()
            if server.fault == "one-worker":  # long enough for the next to meet it on a busy machine, too
                time.sleep(LONG_SECONDS)
            if self.path == "/models":
                self._answer(*server.models.load(json.loads(body)))
            elif self.path.startswith("/models/") and not server.models.has(self.path.split("/")[2]):
                self._error(500 if server.fault == "invoke-500" else 404, "not loaded")
            else:
                self._count("/invocations")
                self._invoke(body)
        finally:
            with server.lock:
                server.working -= 1

    def _count(self, path: str) -> None:
        label = path if self.server.fault == "labels-of-clients" else "all"
        with self.server.lock:
            self.server.counts[label] = self.server.counts.get(label, 0) + 1

    def _ping(self) -> None:
        server, fault = self.server, self.server.fault
        server.pings += 1
        if fault == "logs-pings":
            print("GET /ping 200", flush=True)
        if fault == "ping-waits":
            while server.working:
                time.sleep(0.01)
        if fault == "load-blocks":
            with server.models.loading:
                pass
        if fault == "slow-ping" and server.pings > 2:
            time.sleep(2.2)
        if fault == "no-ping":
            self._error(404, "no such path")
        elif fault == "ping-one-by-one" and not server.pinging.acquire(blocking=False):
            self._error(503, "another ping")
        elif fault == "ping-one-by-one":
            time.sleep(LONG_SECONDS)
            server.pinging.release()
            self._answer(200, b"")
        else:
            self._answer(self._health(), b"OK" if fault == "ping-body" else b"")

    def _health(self) -> int:
        server, fault = self.server, self.server.fault
        if fault == "never-ready" or (fault == "empty-waits" and not server.has_model):
            return 503
        if fault == "flapping" and server.pings % 3 == 0:
            return 500
        strange = any(name.lower().startswith("x-amzn") for name in self.headers)
        return 400 if fault == "ping-strict" and strange else 200

    def _metrics(self) -> None:
        counts = {"all": 1} if self.server.fault == "dead-metrics" else dict(self.server.counts)
        lines = [f'toy_requests_total{{path="{path}"}} {count}' for path, count in counts.items()]
        text = "# TYPE toy_requests_total counter\n" + "\n".join(lines) + "\n"
        body = json.dumps(counts) if self.server.fault == "json-metrics" else text
        self._answer(200, body.encode(), "text/plain; version=0.0.4")

    def _parameters(self) -> None:
        fault = self.server.fault
        if fault == "parameters-500":
            self._error(500, "broken")
        elif fault == "parameters-html":
            self._answer(200, b"<html>hello</html>", "text/html")
        else:
            self._answer(200, {**PARAMETERS, **BENT_PARAMETERS.get(fault, {})})

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "") and self.server.fault != "no-chunks":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        length = int(self.headers.get("Content-Length", 0))
        return self.rfile.read1(length) if self.server.fault == "one-read" else self.rfile.read(length)

    def _invoke(self, body: bytes) -> None:
        refusal = self._refused(body)
        if refusal:
            self._error(*refusal)
            return
        media_type = self.headers.get("Content-Type", "application/json").partition(";")[0].lower()
        try:
            if media_type == "text/csv":
                self._answer(200, self._records(body), "text/csv", self._extra())
                return
            document = json.loads(body)
            instances = [] if "requestType" in document else document["instances"]
        except (ValueError, KeyError, TypeError):
            self._bad(body)
            return
        if document.get("requestType") == "CLOSE":
            self._close(self.headers[SESSION])
            return
        time.sleep(LONG_SECONDS if document.get("slow") else 0)
        if document.get("stream"):
            self._stream()
            return
        self._answer(200, {"predictions": instances}, *self._form())

    def _records(self, body: bytes) -> bytes:
        lines = body.splitlines(keepends=True)
        return b"".join(lines[1:] if self.server.fault == "loses-records" else lines)

    def _form(self) -> tuple[str, dict[str, str]]:
        fault = self.server.fault
        content_type = {"wrong-type": "text/html", "no-type": ""}.get(fault, "application/json")
        return content_type, self._extra()

    def _extra(self) -> dict[str, str]:
        extra = {}
        if ATTRIBUTES in self.headers and self.server.fault != "drops-attributes":
            long = "a" * 2000 if self.server.fault == "long-attributes" else ""
            extra[ATTRIBUTES] = self.headers[ATTRIBUTES] + long
        if self.headers.get(SESSION) == "NEW_SESSION":
            expires = "" if self.server.fault == "session-form" else "; Expires=2030-01-01T00:00:00Z"
            with self.server.lock:
                self.server.sessions.add(session := f"id-{len(self.server.sessions)}")
            extra[NEW_SESSION] = f"{session}{expires}"
        return extra

    def _has_session(self) -> bool:
        """False for the id of a session that is closed, or was never opened."""
        fault, named = self.server.fault, self.headers.get(SESSION, "NEW_SESSION")
        if named == "NEW_SESSION" or fault == "session-any":
            return True
        is_open = named in self.server.sessions and (
            fault == "session-remains" or named not in self.server.closed
        )
        return is_open and fault != "session-lost"

    def _close(self, named: str) -> None:
        self.server.closed.add(named)
        self._answer(
            200,
            {},
            "application/json",
            {} if self.server.fault == "session-not-named" else {CLOSED_SESSION: named},
        )

    def _refused(self, body: bytes) -> tuple[int, str] | None:
        server, headers = self.server, self.headers
        accept, attributes = headers.get("Accept"), headers.get(ATTRIBUTES, "")
        refusals = {
            "always-500": True,
            "body-limit": len(body) > 1_000_000,
            "one-worker": server.working > 1,
            "strict-accept": accept not in {None, "application/json"},
            "needs-accept": accept is None,
            "accept-500": accept == "application/x-no-such-type",
            "refuses-unknown": any(
                name.lower() not in KNOWN and "amzn" not in name.lower() for name in headers
            ),
            "short-attributes": len(attributes) > 256,
            "takes-target-model": "X-Amzn-SageMaker-Target-Model" in headers,
            "short-headers": len(str(headers)) > 2048,
            "session-500": SESSION in headers,
            "checks-host": not headers.get("Host", "").startswith(("127.0.0.1", "localhost", "model")),
            "strict-type": headers.get("Content-Type") not in {"application/json", "text/csv"},
            "empty-500": not body,
            "constant-ping": time.monotonic() < server.loaded_at,
        }
        statuses = {"body-limit": 413, "needs-accept": 406, "strict-type": 415, "takes-target-model": 404}
        late = {"always-500", "accept-500", "session-500", "empty-500", "constant-ping", "one-worker"}
        if not server.has_model:
            return 503, "no model"
        if not self._has_session():
            return 400, "no such session"
        if refusals.get(server.fault):
            return statuses.get(server.fault, 500 if server.fault in late else 400), "refused"
        return None

    def _bad(self, body: bytes) -> None:
        fault = self.server.fault
        if fault == "dies-of-errors":
            os._exit(1)
        if fault == "hangs-up":
            self.close_connection = True
        elif fault == "errors-as-200":
            self._answer(200, {"error": "it is not JSON"})
        elif fault == "html-errors":
            self._answer(400, b"<!doctype html><h1>Bad Request</h1>", "text/html")
        elif fault in {"text-errors", "traceback"}:
            text = "it is not JSON" if fault == "text-errors" else "".join(traceback.format_stack())
            head = "" if fault == "text-errors" else "Traceback (most recent call last):\n"
            self._answer(400, (head + text).encode(), "text/plain")
        elif fault == "deep-errors":
            self._answer(400, b"[" * 200_000)
        elif fault == "long-errors":
            self._error(400, "x" * 5000)
        else:
            self._error(500 if fault == "errors-as-500" else 400, "it is not JSON")

    def _stream(self) -> None:
        fault = self.server.fault
        if fault == "stream-length":
            time.sleep(PARTS * PART_SECONDS)
            self._answer(200, b"part\n" * PARTS, "application/jsonlines")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/jsonlines")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        chunk = b"5\r\npart\n\r\n"
        if fault == "stream-at-end":
            time.sleep(PARTS * PART_SECONDS)
            self.wfile.write(chunk * PARTS + b"0\r\n\r\n")
            return
        for _ in range(PARTS):
            self.wfile.write(chunk)
            time.sleep(PART_SECONDS)
        if fault == "stream-cut":
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _error(self, status: int, text: str) -> None:
        self._answer(status, {"error": text})

    def _answer(
        self,
        status: int,
        body: bytes | Any,
        content_type: str = "application/json",
        extra: dict[str, str] | None = None,
    ) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        if self.server.fault == "unframed" and self.command == "POST":
            self.close_connection = True
        else:
            missing = 2 if self.server.fault == "short-length" and self.command == "POST" else 0
            self.send_header("Content-Length", str(len(content) - missing))
        if self.server.fault == "closes":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
