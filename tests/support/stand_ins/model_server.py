"""A stand-in for tensorflow_model_server if a test is about processes, not about models.

It takes the flags that the supervisor gives, reports every version of the config as these variables
say (``STAND_IN_GATE``, ``STAND_IN_LOAD_ERROR``, ``STAND_IN_EXIT``), never ends its answer to a body with "endless", dies of one with "die" after
a line in the file ``STAND_IN_DEATHS``, and answers every predict with
the body and the traceparent it got, and with the headers in ``STAND_IN_HEADERS`` (JSON), or with half of each
instance plus two (``STAND_IN_HALVES``). It loads until the gate (tests/support/gates.py) is open. It shows
metrics as the official server does, at the path of its monitoring config, and never answers there with
``STAND_IN_SILENT``.
"""

import http.server
import json
import os
import re
import signal
import sys
import threading
from pathlib import Path

FLAGS = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
CONFIG = Path(FLAGS["model_config_file"]).read_text()
MODELS = {
    re.findall(r'name: "([^"]*)"', entry)[0]: [
        int(version) for version in re.findall(r"versions: (\d+)", entry)
    ]
    for entry in CONFIG.split("config {")[1:]
}
GATE = os.environ.get("STAND_IN_GATE")
MONITORING = Path(FLAGS["monitoring_config_file"]).read_text() if "monitoring_config_file" in FLAGS else ""
METRICS_PATH = "".join(re.findall(r'path: "([^"]*)"', MONITORING))
METRICS = """# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{{model_name="m",status="OK"}} {requests}
# TYPE :tensorflow:serving:request_latency histogram
:tensorflow:serving:request_latency_bucket{{model_name="m",le="10"}} 0
:tensorflow:serving:request_latency_bucket{{model_name="m",le="+Inf"}} {requests}
:tensorflow:serving:request_latency_sum{{model_name="m"}} 100
:tensorflow:serving:request_latency_count{{model_name="m"}} {requests}
"""
LOAD_ERROR = os.environ.get("STAND_IN_LOAD_ERROR", "")


def status(version: int) -> dict[str, object]:
    """One version's entry of a model status."""
    loading = GATE is not None and not Path(GATE).with_name("open").exists()
    failed = bool(LOAD_ERROR) and not loading
    state = "LOADING" if loading else "END" if failed else "AVAILABLE"
    error = {
        "error_code": "INVALID_ARGUMENT" if failed else "OK",
        "error_message": LOAD_ERROR if failed else "",
    }
    return {"version": str(version), "state": state, "status": error}


class Handler(http.server.BaseHTTPRequestHandler):
    """Status for GET, an echo for POST."""

    protocol_version = "HTTP/1.1"

    requests = 0

    def do_GET(self) -> None:
        if self.path == METRICS_PATH:
            if "STAND_IN_SILENT" in os.environ:
                threading.Event().wait()
            self.answer(200, METRICS.format(requests=Handler.requests))
            return
        name = self.path.removeprefix("/v1/models/")
        if name not in MODELS:
            self.answer(404, {"error": f"Could not find any versions of model {name}"})
        else:
            self.answer(200, {"model_version_status": [status(version) for version in MODELS[name]]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "die" in body and "STAND_IN_DEATHS" in os.environ:
            with Path(os.environ["STAND_IN_DEATHS"]).open("a") as deaths:
                deaths.write(f"{body}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if "endless" in body:
            self.answer(200, "{", 10**12)
            while True:
                self.wfile.write(b" " * 65_536)
        Handler.requests += 1
        if "STAND_IN_HALVES" in os.environ:
            self.answer(200, {"predictions": [x / 2 + 2 for x in json.loads(body)["instances"]]})
            return
        trace = {"traceparent": sent} if (sent := self.headers["traceparent"]) else {}
        self.answer(200, {"predictions": [{"path": self.path, "body": body, **trace}]})

    def answer(self, code: int, document: object, length: int = 0) -> None:
        text = (document if isinstance(document, str) else json.dumps(document)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length or len(text)))
        for name, value in json.loads(os.environ.get("STAND_IN_HEADERS", "{}")).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    """Serve until killed, or fail as ``STAND_IN_EXIT`` says."""
    if "STAND_IN_EXIT" in os.environ:
        sys.exit(f"Failed to start server. Error: {os.environ['STAND_IN_EXIT']}")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(FLAGS["rest_api_port"])), Handler)
    server.daemon_threads = True
    print("stand-in model server is up", " ".join(sys.argv[1:]), flush=True)
    server.serve_forever()


main()
