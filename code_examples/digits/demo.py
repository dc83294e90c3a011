"""Serve build/model.tar.gz, post held-back images to it as any client would, and count right answers.

Run train.py first. Exits with 1 unless most answers are right; the server is stopped in any case.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
ARCHIVE = BUILD / "model.tar.gz"
IMAGES = BUILD / "images"
LABELS = BUILD / "labels.json"
SERVER_LOG = BUILD / "serve.log"

MEDIA_TYPES = {".png": "image/png", ".jpg": "image/jpeg"}
START_SECONDS = 120.0
POLL_SECONDS = 0.1
REPEAT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
STOP_SECONDS = 40.0
LOG_LINES_SHOWN = 25

# Loopback is reached directly, even if the environment names a proxy for everything else.
web = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class DemoFailure(Exception):
    """The demo can't go on; the text says why."""


def main() -> int:
    """Run the demo; the exit status."""
    try:
        right, asked = run()
    except DemoFailure as failure:
        print(f"The demo failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped, and the server too.", file=sys.stderr)
        return 130
    print(f"\n{right} of {asked} right. Ask it yourself: `make serve` in one terminal, in another")
    print(f"  curl -H 'Content-Type: image/png' --data-binary @{example_image()} localhost:8080/invocations")
    print("or open http://localhost:8080/ in a browser and drop an image there.")
    return 0 if right * 2 > asked else 1


def run() -> tuple[int, int]:
    """Serve and ask; how many answers were right, and how many questions were asked."""
    if not (ARCHIVE.exists() and LABELS.exists()):
        raise DemoFailure(f"{ARCHIVE} or {LABELS.name} is missing; run train.py first.")
    labels: dict[str, int] = json.loads(LABELS.read_text())
    with serving(ARCHIVE, free_port(), SERVER_LOG) as url:
        right = sum(ask(url, IMAGES / name, label) for name, label in labels.items())
    return right, len(labels)


def example_image() -> Path:
    """An image for the user's own first request."""
    return next(path for path in sorted(IMAGES.iterdir()) if path.suffix == ".png")


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(archive: Path, port: int, log_file: Path) -> Iterator[str]:
    """Run `tfs-proxy serve` on ``port`` and give its address once /ping says 200; stop it at the end.

    A DemoFailure inside gets the server's last words from ``log_file``.
    """
    command = [sys.executable, "-m", "tfs_proxy.cli", "serve", str(archive)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    print("$", "tfs-proxy", *command[3:], flush=True)
    with log_file.open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_ready(server, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        except DemoFailure as failure:
            lines = log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            raise DemoFailure(
                "\n".join([f"{failure}", f"The last lines of {log_file}:", *lines])
            ) from failure
        finally:
            stop(server)


def wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    """Wait for 200 on /ping, and print what the server is doing meanwhile.

    Raises DemoFailure if the server ends or takes too long.
    """
    started = time.monotonic()
    said, said_at = "", 0.0
    while (seconds := time.monotonic() - started) < START_SECONDS:
        if server.poll() is not None:
            raise DemoFailure(f"the server ended with status {server.returncode}.")
        reason = why_not_ready(url)
        if reason is None:
            print(f"ready after {seconds:.1f} s\n", flush=True)
            return
        if reason != said or seconds - said_at >= REPEAT_SECONDS:
            print(f"  {seconds:4.1f} s: {reason}", flush=True)
            said, said_at = reason, seconds
        time.sleep(POLL_SECONDS)
    raise DemoFailure(f"the server was not ready after {START_SECONDS:.0f} s.")


def why_not_ready(url: str) -> str | None:
    """What /ping gives as the reason; None once it answers 200."""
    try:
        with web.open(f"{url}/ping", timeout=2):
            return None
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["error"])
    except OSError:
        return "starting: the port is not open yet"


def ask(url: str, image: Path, label: int) -> bool:
    """Post one image, print the question and the answer, and say whether it was right."""
    media_type = MEDIA_TYPES[image.suffix]
    body = image.read_bytes()
    request = urllib.request.Request(f"{url}/invocations", body, {"Content-Type": media_type})
    try:
        with web.open(request, timeout=ANSWER_SECONDS) as response:
            answer = response.read().decode()
        right = bool(json.loads(answer)["label"] == label)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        raise DemoFailure(f"{image.name} was answered {error.code}: {text}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DemoFailure(f"{image.name} got no usable answer: {error!r}") from error
    print(f"POST {image.name} ({media_type}, {len(body)} bytes, a {label}) -> {answer}", end="  ")
    print("right" if right else "WRONG", flush=True)
    return right


def stop(server: subprocess.Popen[bytes]) -> None:
    """Ask the server to stop, and see that it does."""
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
