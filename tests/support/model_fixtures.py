"""Fixtures that build our SavedModels once per machine, and serve them once per run."""

import http.client
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.stack import free_port

ROOT = Path(__file__).resolve().parents[2]
BUILDER = ROOT / "tests" / "support" / "models" / "build.py"
READY_WITHIN_SECONDS = 180.0


@dataclass(frozen=True)
class EmbeddedServer:
    """A running embedded model server: its addresses, its process and its log."""

    rest_port: int
    grpc_port: int
    grpc_socket: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def rest(self) -> str:
        """The address of its REST side."""
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def grpc(self) -> str:
        """The address of its gRPC side."""
        return f"127.0.0.1:{self.grpc_port}"

    def state(self, model: str, version: int | None = None) -> str:
        """What it says of a model, as text; "" where it does not answer."""
        path = f"/v1/models/{model}" + (f"/versions/{version}" if version is not None else "")
        try:
            with urllib.request.urlopen(self.rest + path, timeout=10) as reply:
                return str(reply.read(), "utf-8")
        except urllib.error.HTTPError as error:
            return str(error.read(), "utf-8")
        except (OSError, http.client.HTTPException):
            return ""

    def wait_for(self, condition: Callable[[], bool], seconds: float = READY_WITHIN_SECONDS) -> None:
        """Wait until something holds; fails with the log where it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"not in time; the server's log:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.02)

    def stop(self) -> int:
        """Ask it to stop and return its exit status."""
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture(scope="session")
def saved_models() -> Path:
    """The folder of our SavedModels, one folder per model; kept below .cache for the next run."""
    import runpy

    key = runpy.run_path(str(BUILDER))["source_key"]()
    root: Path = ROOT / ".cache" / "models" / key
    if not (root / ".complete").exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(BUILDER), str(root)], check=True, capture_output=True)
    return root


StartServer = Callable[..., EmbeddedServer]


def start_server(folder: Path, flags: Sequence[str]) -> EmbeddedServer:
    """Start the embedded server with these flags on ports of its own; its log goes to ``folder``."""
    log = folder / f"model-server-{time.monotonic_ns()}.log"
    rest, grpc_port = free_port(), free_port()
    unix = str(folder / f"{time.monotonic_ns()}.sock")
    argv = [sys.executable, "-m", "tfs_proxy.embedded", f"--port={grpc_port}", f"--rest_api_port={rest}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*argv, f"--grpc_socket_path={unix}", *flags], stdout=output, stderr=subprocess.STDOUT
        )
    return EmbeddedServer(rest, grpc_port, unix, process, log)


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts embedded servers with given flags; they are stopped after the test."""
    started: list[EmbeddedServer] = []

    def start(*flags: str) -> EmbeddedServer:
        started.append(start_server(tmp_path, flags))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait(30)


def write_config(path: Path, models: Path) -> Path:
    """A model config file that serves every folder below ``models``; `versions` in all its versions."""
    entries = [
        f'config {{ name: "{each.name}" base_path: "{each}" model_platform: "tensorflow" '
        + ("model_version_policy { all {} } " if each.name == "versions" else "")
        + "}"
        for each in sorted(models.iterdir())
        if each.is_dir()
    ]
    path.write_text("model_config_list {\n" + "\n".join(entries) + "\n}\n")
    return path


@contextmanager
def serving_all(
    folder: Path, models: Path, *flags: str, until: Sequence[str] = ("AVAILABLE",)
) -> Iterator[EmbeddedServer]:
    """An embedded server with every model below ``models``, once each is in one of these states."""
    config = write_config(folder / "models.config", models)
    server = start_server(folder, [f"--model_config_file={config}", *flags])
    names = [each.name for each in models.iterdir() if each.is_dir()]
    try:
        server.wait_for(
            lambda: all(any(f'"{state}"' in server.state(name) for state in until) for name in names)
        )
        yield server
        server.process.terminate()
        server.process.wait(60)
    finally:
        server.process.kill()
        server.process.wait(60)


@pytest.fixture(scope="session")
def embedded_server(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """One embedded server with all our models, for the whole run; tests leave it as it is."""
    with serving_all(tmp_path_factory.mktemp("embedded"), saved_models) as server:
        yield server
