"""Fixtures that build our SavedModels once per machine, and serve them once per run."""

import hashlib
import http.client
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.building import alone
from support.ports import free_port
from support.running import RunningProcess

ROOT = Path(__file__).resolve().parents[2]
BUILDER = ROOT / "tests" / "support" / "models" / "build.py"
FILES_WRITER = BUILDER.with_name("keras_files.py")


class EmbeddedServer(RunningProcess):
    """A running embedded model server, with ports and a unix socket of its own."""

    def __init__(self, folder: Path, flags: Sequence[str], launcher: Sequence[str] = ()) -> None:
        self.rest_port, self.grpc_port = free_port(), free_port()
        self.grpc_socket = str(folder / f"{time.monotonic_ns()}.sock")
        argv = [
            *(*launcher, sys.executable, "-m", "tfs_proxy.embedded"),
            *(f"--port={self.grpc_port}", f"--rest_api_port={self.rest_port}"),
            f"--grpc_socket_path={self.grpc_socket}",
        ]
        super().__init__([*argv, *flags], port=self.rest_port)

    @property
    def rest(self) -> str:
        """The address of its REST side."""
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def grpc(self) -> str:
        """The address of its gRPC side."""
        return f"127.0.0.1:{self.grpc_port}"

    def state(self, model: str, version: int | None = None) -> str:
        """What it says of a model, as text; "" if it does not answer."""
        path = f"/v1/models/{model}" + (f"/versions/{version}" if version is not None else "")
        try:
            return self.ask("GET", path, timeout=10).body.decode()
        except (OSError, http.client.HTTPException):
            return ""

    def wait_for_state(self, state: str, model: str, version: int | None = None) -> None:
        """Wait until a version, or any if none is named, is in this state."""
        self.wait_until(
            lambda: f'"{state}"' in self.state(model, version),
            f"{model}, version {version or 'any'}: {state}",
        )

    def wait_available(self, model: str, version: int | None = None) -> None:
        """Wait until a version, or any if none is named, is available."""
        self.wait_for_state("AVAILABLE", model, version)


def built_by(program: Path, folder: str) -> Path:
    """What a program of ours writes into a folder of its own below .cache, once per machine."""
    root: Path = ROOT / ".cache" / folder / runpy.run_path(str(program))["source_key"]()
    with alone(folder):
        if not (root / ".complete").exists():
            shutil.rmtree(root, ignore_errors=True)
            root.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, str(program), str(root)], check=True, capture_output=True)
    return root


@pytest.fixture(scope="session")
def saved_models() -> Path:
    """The folder of our SavedModels, one folder per model."""
    return built_by(BUILDER, "models")


@pytest.fixture(scope="session")
def model_files() -> Path:
    """A folder of files that trained models come in (support/models/keras_files.py)."""
    return built_by(FILES_WRITER, "model_files")


Exported = Callable[[str], Path]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Gives the folder of the models that a program saves below its argument; kept below .cache, too."""

    def of(program: str) -> Path:
        root: Path = ROOT / ".cache" / "exported" / hashlib.sha256(program.encode()).hexdigest()[:16]
        with alone(root.name):
            if not (root / ".complete").exists():
                shutil.rmtree(root, ignore_errors=True)
                root.mkdir(parents=True)
                argv, folder = [sys.executable, "-c", program, str(root)], tmp_path_factory.mktemp("assets")
                subprocess.run(argv, check=True, capture_output=True, cwd=folder)
                (root / ".complete").touch()
        return root

    return of


StartServer = Callable[..., EmbeddedServer]


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts embedded servers with the flags that a test chooses; they are stopped after it."""
    started: list[EmbeddedServer] = []

    def start(*flags: str) -> EmbeddedServer:
        started.append(EmbeddedServer(tmp_path, flags))
        return started[-1]

    yield start
    for server in started:
        server.kill()


Serve = Callable[..., EmbeddedServer]


@pytest.fixture
def serve(saved_models: Path, model_server: StartServer) -> Serve:
    """Starts a server of one of our models, or of a folder, and waits until it is available."""

    def start(model: str | Path, *flags: str, name: str = "") -> EmbeddedServer:
        folder = saved_models / model
        server = model_server(f"--model_base_path={folder}", f"--model_name={name or folder.name}", *flags)
        server.wait_available(name or folder.name)
        return server

    return start


@contextmanager
def serving_one(folder: Path, model: Path, *flags: str) -> Iterator[EmbeddedServer]:
    """An embedded server of the model ``m``, once it is available."""
    server = EmbeddedServer(folder, [f"--model_base_path={model}", "--model_name=m", *flags])
    try:
        server.wait_available("m")
        yield server
    finally:
        server.kill()


def write_config(path: Path, models: Path, names: Sequence[str] = ()) -> Path:
    """A model config file of these folders below ``models``, or all; `versions` in all its versions."""
    entries = [
        f'config {{ name: "{model.name}" base_path: "{model}" model_platform: "tensorflow" '
        + ("model_version_policy { all {} } " if model.name == "versions" else "")
        + "}"
        for model in sorted(models.iterdir())
        if model.is_dir() and (not names or model.name in names)
    ]
    path.write_text("model_config_list {\n" + "\n".join(entries) + "\n}\n")
    return path


@contextmanager
def serving_all(
    folder: Path, models: Path, *flags: str, names: Sequence[str] = (), until: Sequence[str] = ("AVAILABLE",)
) -> Iterator[EmbeddedServer]:
    """An embedded server with these models below ``models``, or all, once each is in one of these states."""
    config = write_config(folder / "models.config", models, names)
    server = EmbeddedServer(folder, [f"--model_config_file={config}", *flags])
    names = names or [path.name for path in models.iterdir() if path.is_dir()]
    try:
        server.wait_until(
            lambda: all(any(f'"{state}"' in server.state(name) for state in until) for name in names),
            f"each of {names} is in one of the states {until}",
        )
        yield server
        server.stop()
    finally:
        server.kill()


@pytest.fixture(scope="session")
def embedded_server(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """One embedded server with all our models, for the whole run; tests leave it as it is."""
    with serving_all(tmp_path_factory.mktemp("embedded"), saved_models) as server:
        yield server
