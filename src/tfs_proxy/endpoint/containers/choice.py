"""Which container a definition means: what the command line says, else its image, else ours."""

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from tfs_proxy.endpoint.description.values import ContainerDefinition, HostedModel
from tfs_proxy.errors import SettingsError
from tfs_proxy.names import printable

LOCAL = "local"
INSPECT_SECONDS = 30.0


class Ours(Struct, frozen=True):
    """This package's own container, as a process; ``because`` says why, if nobody asked for it."""

    because: str = ""


class DockerImage(Struct, frozen=True):
    """An image that Docker has."""

    reference: str


class Running(Struct, frozen=True):
    """A container that runs already."""

    host: str
    port: int


Choice = Ours | DockerImage | Running


def parse_choices(words: Sequence[str]) -> dict[str, Choice]:
    """``HOSTNAME=local|IMAGE|http://HOST:PORT`` of the command line; raises SettingsError for others."""
    choices: dict[str, Choice] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise SettingsError(
                f"--container {printable(word)} can't be used: it must be "
                "HOSTNAME=local, HOSTNAME=IMAGE or HOSTNAME=http://HOST:PORT."
            )
        choices[name] = _chosen(value)
    return choices


def _chosen(value: str) -> Choice:
    if value == LOCAL:
        return Ours()
    return _running(value) if _is_address(value) else DockerImage(value)


def _is_address(text: str) -> bool:
    return text.startswith("http://")


def _running(address: str) -> Running:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path.strip("/"):
        raise SettingsError(f"{printable(address)} can't be used: it must be http://HOST:PORT.")
    return Running(host, port or 80)


def choice_for(model_name: str, definition: ContainerDefinition, choices: Mapping[str, Choice]) -> Choice:
    """The container for ``definition``, by its hostname, else by the name of its model, else by its image."""
    for name in (definition.name, model_name):
        if name in choices:
            return choices[name]
    image = definition.image
    if image is None:
        return Ours("its model names no image")
    if _is_address(image):
        return _running(image)
    missing = _why_docker_has_not(image)
    return DockerImage(image) if missing is None else Ours(missing)


def unused_choices(choices: Mapping[str, Choice], models: Iterable[HostedModel]) -> list[str]:
    """The names of ``choices`` that neither a model nor a container has."""
    known = {name for model in models for name in (model.name, *(each.name for each in model.containers))}
    return [name for name in choices if name not in known]


def _why_docker_has_not(image: str) -> str | None:
    docker = shutil.which("docker")
    if docker is None:
        return "there is no Docker here"
    try:
        inspect = [docker, "image", "inspect", image]
        found = subprocess.run(inspect, capture_output=True, timeout=INSPECT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "Docker does not answer"
    return None if found.returncode == 0 else f"Docker has no image {image}"
