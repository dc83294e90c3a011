"""``python -m support.toy_container --port P [--model FOLDER] [--fault NAME]``: from the start to SIGTERM."""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from support.toy_container.faults import FAULTS
from support.toy_container.serving import ToyServer

SLOW_START_SECONDS = 1.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("serve", nargs="?")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--fault", choices=FAULTS)
    arguments = parser.parse_args()
    fault = arguments.fault or ""
    os.environ.setdefault("SAGEMAKER_MULTI_MODEL", "false")
    _fail_at_start(fault)
    has_model = arguments.model is None or any(arguments.model.iterdir())
    if not has_model and not fault.startswith("empty-"):
        sys.exit("no model")
    if not has_model and fault == "empty-exit-0":
        sys.exit(0)
    _write_cache(fault, arguments.model)
    port = int(os.environ.get("SAGEMAKER_BIND_TO_PORT", arguments.port))
    server = ToyServer(arguments.port if fault == "ignores-port" else port, fault)
    server.has_model = has_model
    if fault == "constant-ping":
        server.loaded_at = time.monotonic() + SLOW_START_SECONDS
    if fault == "port-of-its-own":
        server.other = socket.create_server(("127.0.0.1", 0))
    _on_sigterm(server, fault)
    if fault != "silent":
        print(json.dumps({"message": "listening", "port": port}), flush=True)
    server.serve_forever(poll_interval=0.02)
    server.wait_for_requests()
    os._exit(1 if fault == "exit-1" else 0)


def _fail_at_start(fault: str) -> None:
    variables = sum(len(name) + len(value) for name, value in os.environ.items() if name.startswith("C"))
    if fault == "crash" or (fault == "small-environment" and variables > 8192):
        sys.exit("can't start")
    if fault == "refuses-batch" and "SAGEMAKER_BATCH" in os.environ:
        sys.exit("can't run in batches")


def _write_cache(fault: str, model: Path | None) -> None:
    if fault == "writes-model" and model:
        model.chmod(0o755)
        (model / "cache").write_text("x")


def _on_sigterm(server: ToyServer, fault: str) -> None:
    if fault in {"deaf", "deaf-at-start"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif fault == "no-drain":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    else:
        stop = threading.Thread(target=server.shutdown)
        signal.signal(signal.SIGTERM, lambda *_: stop.start())


if __name__ == "__main__":
    main()
