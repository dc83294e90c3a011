"""The start of the container for each occasion: variables, folders and ports as SageMaker sets them."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tfs_proxy.tools.conform.check import NotRun, Occasion
from tfs_proxy.tools.conform.target import Capability, StartOrder, free_port
from tfs_proxy.wire.media_types import JSON

MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_TOTAL_BYTES = 100, 1024, 32 * 1024
"""Limits of CreateModel's Environment: docs/reference/sagemaker.md, Start and stop."""
SAFE_PORTS = 40
MODEL_NAMES = ("3f0d9a7c41e86b25d0aa7e5be1c4f6a8d2937c10", "b85c2e60f97d134aa6f2c803e5d91b7f4e0c6d12")
"""Hexadecimal, as the names that SageMaker gives."""
BATCH_ENVIRONMENT = {
    "SAGEMAKER_BATCH": "true",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "6",
    "SAGEMAKER_BATCH_STRATEGY": "MULTI_RECORD",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "2",
}


def start_order(
    occasion: Occasion, model: Path | None, capabilities: frozenset[Capability], folders: ExitStack
) -> StartOrder:
    """Describes the start for one occasion; temporary folders live until ``folders`` is closed.

    Raises NotRun if the occasion does not apply.
    """
    order = StartOrder()
    match occasion:
        case Occasion.READ_ONLY:
            order = StartOrder(model=_read_only(_required(model), _folder(folders), folders))
        case Occasion.ENVIRONMENT:
            order = StartOrder(env=environment_of_100())
        case Occasion.EMPTY_MODEL:
            order = StartOrder(model=_folder(folders))
        case Occasion.BATCH:
            order = StartOrder(env=BATCH_ENVIRONMENT)
        case Occasion.PIPELINE:
            _require(Capability.PIPELINE, capabilities)
            order = pipeline_order(free_port())
        case Occasion.MULTI_MODEL:
            _require(Capability.MULTI_MODEL, capabilities)
            order = StartOrder({"SAGEMAKER_MULTI_MODEL": "true"}, models=_models(model, _folder(folders)))
    return order


def environment_of_100() -> Mapping[str, str]:
    """Variables as many and as long as CreateModel takes."""
    longest = {"C" * MAX_ENTRY_BYTES: "v" * MAX_ENTRY_BYTES}
    names = [f"CONFORM_{number:03}" for number in range(MAX_ENTRIES - len(longest))]
    left = MAX_TOTAL_BYTES - 2 * MAX_ENTRY_BYTES
    return longest | {name: "a b=c;" + "x" * (left // len(names) - len(name) - 6) for name in names}


def pipeline_order(port: int) -> StartOrder:
    """A container of a pipeline, with ``port`` to listen on and a range of others."""
    low = port + 1 if port + SAFE_PORTS < 65_536 else port - SAFE_PORTS  # noqa: PLR2004 - ports end there
    env = {
        "SAGEMAKER_SAFE_PORT_RANGE": f"{low}-{low + SAFE_PORTS - 1}",
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": JSON,
    }
    return StartOrder(env=env, port=port)


def snapshot(folder: Path) -> Mapping[str, tuple[int, int]]:
    """Size and modification time of each file below ``folder``, by relative path."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
    }


def _require(capability: Capability, capabilities: frozenset[Capability]) -> None:
    if capability not in capabilities:
        raise NotRun(f"it does not say that it can: --{capability.value}, or the label {capability.label}")


def _required(model: Path | None) -> Path:
    if model is None:
        raise NotRun("no model was given: use --model")
    return model


def _folder(folders: ExitStack) -> Path:
    return Path(folders.enter_context(tempfile.TemporaryDirectory(prefix="tfs-proxy-conform-")))


def _read_only(model: Path, folder: Path, folders: ExitStack) -> Path:
    copied = folder / "model"
    shutil.copytree(model, copied)
    folders.callback(_set_modes, copied, 0o755, 0o644)
    _set_modes(copied, 0o555, 0o444)
    return copied


def _set_modes(folder: Path, of_folders: int, of_files: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(of_folders if path.is_dir() else of_files)


def _models(model: Path | None, folder: Path) -> Path:
    """A folder with one copy of the model, if there is one, for each name; files are linked if possible."""
    for name in MODEL_NAMES if model else ():
        shutil.copytree(_required(model), folder / name / "model", copy_function=_link_or_copy)
    return folder


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
