"""A target that is an image: Docker's command line starts it as SageMaker does, ``IMAGE serve``."""

import json
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from tfs_proxy.tools.conform.target import CannotStart, RunningContainer, StartOrder, of_labels
from tfs_proxy.tools.conform.target_command import BIND_TO_PORT, LOOPBACK, PROC, namespace_ports
from tfs_proxy.values.errors import SettingsError

DOCKER_SECONDS = 120.0
DEFAULT_PORT = 8080
REACH_SECONDS = 1.0
LOG_LINES = 5000
MODEL_FOLDER, MODELS_FOLDER = "/opt/ml/model", "/opt/ml/models"


class ImageTarget:
    """An image of the local Docker engine, with the user's own options of ``docker run``."""

    can_start = True

    def __init__(
        self, image: str, model: Path | None, env: Mapping[str, str], options: Sequence[str]
    ) -> None:
        """Raises SettingsError if Docker does not answer, or does not have the image."""
        self.name, self._model, self._env, self._options = image, model, env, options
        self._image: Mapping[str, Any] = json.loads(docker("image", "inspect", image))[0]
        config = self._image.get("Config") or {}
        self.capabilities = of_labels(config.get("Labels") or {})

    @contextmanager
    def started(self, order: StartOrder) -> Iterator[RunningContainer]:
        name = f"tfs-proxy-conform-{uuid.uuid4().hex[:12]}"
        inside = order.port or DEFAULT_PORT
        port = {BIND_TO_PORT: str(inside)} if order.port else {}
        variables = {**self._env, **order.env, **port}
        words = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
        try:
            docker(
                "run", "-d", "--name", name, "-p", f"{LOOPBACK}::{inside}",
                *self._mounts(order), *words, *self._options, self.name, "serve",
            )  # fmt: skip
            yield StartedImage(name, inside)
        except SettingsError as error:
            raise CannotStart(str(error)) from None
        finally:
            with suppress(SettingsError):
                docker("rm", "-f", "-v", name)

    def model_url(self, order: StartOrder, name: str) -> str:  # noqa: ARG002 - the same for each start
        return f"{MODELS_FOLDER}/{name}/model"

    def image(self) -> Mapping[str, object] | None:
        return cast("Mapping[str, object]", self._image.get("Config") or {})

    def _mounts(self, order: StartOrder) -> list[str]:
        model = order.model or self._model
        folder = ["-v", f"{model.resolve()}:{MODEL_FOLDER}:ro"] if model and not order.models else []
        return folder + (["-v", f"{order.models.resolve()}:{MODELS_FOLDER}:ro"] if order.models else [])


class StartedImage:
    """A container that Docker runs.

    Docker's proxy accepts connections to a published port even if the container does not, so the container
    is asked at its own address if this machine reaches that.
    """

    def __init__(self, name: str, inside: int) -> None:
        self.started = time.monotonic()
        self._name = name
        shown = docker("port", name, str(inside), missing_is_empty=True)
        own = [(address, inside) for address in _own_addresses(name)]
        # Docker may run on another machine, where somebody else has the address: as on macOS.
        is_here = (PROC / str(self._state()["Pid"])).exists()
        reached = next(filter(_is_reached, own), None) if is_here else None
        # With the machine's own network, which the user may ask for, no port is published.
        published = (LOOPBACK, int(shown.splitlines()[0].rpartition(":")[2])) if shown.strip() else None
        self.address = reached or published or (LOOPBACK, inside)
        self.accepts_itself = self.address != published

    def exit_status(self) -> int | None:
        state = self._state()
        return None if state["Running"] else int(state["ExitCode"])

    def log(self) -> bytes:
        """Both streams, at most the last lines; Docker cuts lines at 16 KB."""
        try:
            done = subprocess.run(
                ["docker", "logs", "--tail", str(LOG_LINES), self._name],  # noqa: S607 - the user's docker
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DOCKER_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CannotStart(f"docker logs takes longer than {DOCKER_SECONDS:.0f} s") from None
        return done.stdout

    def terminate(self) -> None:
        """SIGTERM to process 1."""
        docker("kill", "--signal", "TERM", self._name)

    def listening(self) -> frozenset[int] | None:
        """All ports of its network namespace; None if that is on another machine or can't be read."""
        return namespace_ports(int(self._state()["Pid"]))

    def _state(self) -> Any:
        return json.loads(docker("inspect", "--format", "{{json .State}}", self._name))


def _own_addresses(name: str) -> list[str]:
    networks = json.loads(docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", name))
    return [network["IPAddress"] for network in (networks or {}).values() if network.get("IPAddress")]


def _is_reached(address: tuple[str, int]) -> bool:
    """True if the address is reachable; a refused connection has reached it, too."""
    try:
        socket.create_connection(address, REACH_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def docker(*words: str, missing_is_empty: bool = False) -> str:
    """Output of a docker command. Raises SettingsError with Docker's message."""
    try:
        done = subprocess.run(
            ["docker", *words],  # noqa: S607 - the user's docker
            capture_output=True, text=True, errors="replace", timeout=DOCKER_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise SettingsError("--image needs docker, which is not installed: use --command or a URL.") from None
    except subprocess.TimeoutExpired:
        raise SettingsError(f"docker {words[0]} takes longer than {DOCKER_SECONDS:.0f} s.") from None
    if done.returncode and not missing_is_empty:
        said = " ".join(done.stderr.split())
        raise SettingsError(f"docker {words[0]} fails: {said}")
    return done.stdout if not done.returncode else ""
