"""Container definitions of a request -> values, with the model data where this machine finds it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.endpoint.description.values import ContainerDefinition
from tfs_proxy.errors import SettingsError
from tfs_proxy.names import printable

MANY_MODELS = "MultiModel"
PRIMARY = "primary"
"""How AWS's errors call the container of a model that has only one."""


def container_definitions(
    containers: Sequence[Mapping[str, Any]], folder: Path
) -> Iterator[ContainerDefinition]:
    """Values of AWS's container definitions; relative paths start from ``folder``.

    Raises SettingsError for model data of a kind that can't be had here.
    """
    for number, container in enumerate(containers, start=1):
        by_place = PRIMARY if len(containers) == 1 else f"container{number}"
        cache = container.get("MultiModelConfig", {}).get("ModelCacheSetting", "Enabled")
        yield ContainerDefinition(
            name=container.get("ContainerHostname", by_place),
            image=container.get("Image"),
            archive=_archive(container, folder),
            many_models=container.get("Mode") == MANY_MODELS,
            caches_models=cache == "Enabled",
            environment=container.get("Environment", {}),
        )


def _archive(container: Mapping[str, Any], folder: Path) -> str | None:
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    address = container.get("ModelDataUrl") or source.get("S3Uri")
    return None if address is None else located(address, folder)


def located(address: str, folder: Path) -> str:
    """An ``s3://`` address as it is; a ``file://`` address or a path as an absolute path.

    Raises SettingsError for other schemes.
    """
    if address.startswith(S3_SCHEME):
        return address
    parts = urlsplit(address)
    if parts.scheme == "file":
        return unquote(parts.path)
    if "://" in address:
        raise SettingsError(
            f"ModelDataUrl {printable(address)} can't be used here: take s3://, file:// or a path."
        )
    return str((folder / address).absolute())
