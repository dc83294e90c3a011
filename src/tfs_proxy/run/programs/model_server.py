"""argv, environment, config files and log of a model server, official or embedded."""

import re
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from msgspec import Struct

from tfs_proxy.model.report.serving_flags import ServingFlags
from tfs_proxy.run.gpus import Placement
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.installation import how_to_install

OFFICIAL_BINARY = "tensorflow_model_server"
EMBEDDED = "embedded"
EMBEDDED_SCRIPT = b"#!/bin/sh\n# tfs-proxy's embedded server"
"""The beginning of the program that has the official binary's name in images without that one."""
AUTO = "auto"


def program(choice: str) -> tuple[str, ...]:
    """The words that start the model server named by ``--model-server``.

    ``auto`` takes the official binary from PATH, else the embedded server. Raises SettingsError
    if the choice can't run here.
    """
    if choice == AUTO:
        binary = shutil.which(OFFICIAL_BINARY)
        with suppress(OSError):  # a program that may be run and not read
            if binary is not None and Path(binary).read_bytes().startswith(EMBEDDED_SCRIPT):
                binary = None
        return (binary,) if binary else _embedded(f"{OFFICIAL_BINARY} is not on PATH, and ")
    if choice == EMBEDDED:
        return _embedded("")
    path = shutil.which(choice)
    if path is None:
        raise SettingsError(
            f"--model-server {choice} is not a program that can be run. Give a path, auto or embedded."
        )
    return (path,)


def _embedded(because: str) -> tuple[str, ...]:
    if find_spec("tensorflow") is None:
        raise SettingsError(
            f"{because}the embedded server needs TensorFlow, which is not installed: "
            f"{how_to_install('embedded')}."
        )
    return (sys.executable, "-m", "tfs_proxy.embedded")


def is_embedded(words: Sequence[str]) -> bool:
    return "tfs_proxy.embedded" in words


def argv(
    words: Sequence[str],
    instance: Instance,
    settings: Settings,
    model_config: Path,
    batching_config: Path,
    *,
    script: bool,
    models: int,
    placement: Placement | None = None,
    monitoring_config: Path | None = None,
) -> tuple[str, ...]:
    """The whole command of one instance (flags: docs/reference/tensorflow-serving.md).

    It has so many ``models``, 0 if they come and go. Without a ``script`` no client needs gRPC over TCP,
    which the official binary opens on all addresses.
    """
    callers = settings.gunicorn_workers * settings.gunicorn_threads
    is_ours = is_embedded(words)
    flags = [
        f"--port={instance.grpc_port if script or is_ours else 0}",
        "--management_on_socket_only=true" if is_ours else "--enable_profiler=false",
        f"--rest_api_port={instance.rest_port}",
        f"--grpc_socket_path={instance.grpc_socket}",
        f"--model_config_file={model_config}",
        "--max_num_load_retries=0",
        "--allow_version_labels_for_unavailable_models=true",
        f"--rest_api_timeout_in_ms={int(settings.request_timeout_seconds * 1000)}",
        f"--rest_api_num_threads={rest_threads(settings, script=script, models=models)}",
        # With fewer than 4 threads a caller, gRPC refuses calls with "Server Threadpool Exhausted".
        f"--grpc_max_threads={4 * callers}",
    ]
    if monitoring_config is not None:
        flags.append(f"--{MONITORING_FLAG}={monitoring_config}")
    if settings.enable_batching:
        flags += ["--enable_batching=true", f"--batching_parameters_file={batching_config}"]
    inter = settings.inter_op_parallelism
    intra = settings.intra_op_parallelism
    if inter is None:
        inter = settings.machine.tensorflow_threads
    if inter:
        flags.append(f"--tensorflow_inter_op_parallelism={inter}")
    if inter < 0 and not intra:
        # NOTE: the official binary takes a negative number only together with one of intra-op threads.
        intra = settings.machine.cores
    if intra:
        flags.append(f"--tensorflow_intra_op_parallelism={intra}")
    if placement is not None:
        flags.append(f"--per_process_gpu_memory_fraction={placement.memory_share:.4f}")
    return (*words, *flags, *settings.extra_args)


def open_to_the_outside(words: Sequence[str], instances: Sequence[Instance], *, script: bool) -> str | None:
    """A sentence on the ports that are open on all addresses, and how to close them; None without any."""
    if is_embedded(words) or not instances:
        return None
    ports = [f"{instance.rest_port} (REST)" for instance in instances]
    ports += [f"{instance.grpc_port} (gRPC)" for instance in instances if script]
    return (
        f"{Path(words[0]).name} listens on all addresses, because it has no flag to choose one: "
        f"other machines can reach {', '.join(ports)}, without a key. To close them, publish only the HTTP "
        "port of the container (no --network host), block them in a firewall, or take --model-server "
        "embedded, which listens on 127.0.0.1."
    )


def environment(base: Mapping[str, str], settings: Settings, placement: Placement | None) -> dict[str, str]:
    """``base`` with a model server's threads, and its GPU if one was chosen for it."""
    chosen = {} if placement is None else {"CUDA_VISIBLE_DEVICES": placement.device}
    return {"OMP_NUM_THREADS": str(settings.omp_num_threads), **base, **chosen}


def model_config(models: Sequence[ServedModel], labels: Mapping[str, int]) -> str:
    """ModelServerConfig as text proto: all versions on disk, and labels for those that a model has."""
    text = "model_config_list {\n"
    for model in models:
        versions = " ".join(f"versions: {version}" for version in model.versions)
        text += (
            f"  config {{\n    name: {_quoted(model.name)}\n    base_path: {_quoted(str(model.base_path))}\n"
        )
        text += (
            f'    model_platform: "tensorflow"\n    model_version_policy {{ specific {{ {versions} }} }}\n'
        )
        for label, version in labels.items():
            if version in model.versions:
                text += f"    version_labels {{ key: {_quoted(label)} value: {version} }}\n"
        text += "  }\n"
    return text + "}\n"


def batching_config(settings: Settings) -> str:
    """BatchingParameters as text proto (docs/reference/tensorflow-serving.md)."""
    return (
        f"max_batch_size {{ value: {settings.max_batch_size} }}\n"
        f"batch_timeout_micros {{ value: {settings.batch_timeout_micros} }}\n"
        f"num_batch_threads {{ value: {settings.num_batch_threads} }}\n"
        f"max_enqueued_batches {{ value: {settings.max_enqueued_batches} }}\n"
    )


def _quoted(text: str) -> str:
    """A text-proto string literal; bytes outside printable ASCII become octal escapes."""

    def escape(match: re.Match[bytes]) -> bytes:
        return b"\\%03o" % match[0][0]

    return '"' + re.sub(rb"[^ !#-\[\]-~]", escape, text.encode()).decode() + '"'


MONITORING_FLAG = "monitoring_config_file"


class Monitoring(Struct, frozen=True):
    """The ``path`` at which the model servers show their metrics, by a file with the text ``config``.

    Both are None if the user gives a file: its metrics are the user's own to ask for.
    """

    path: str | None
    config: str | None


NO_MONITORING = Monitoring(None, None)


def monitoring_for(words: Sequence[str]) -> Monitoring:
    """The monitoring of a model server that gets the user's flags ``words``."""
    if ServingFlags(tuple(words)).value(MONITORING_FLAG):
        return NO_MONITORING
    path = f"/monitoring/{secrets.token_hex(16)}"
    return Monitoring(path, f'prometheus_config {{ enable: true path: "{path}" }}\n')


THREADS_PER_CORE: Final = 4
"""TensorFlow Serving's own default; a thread also waits, for the pool that runs its graph."""

FEWEST: Final = 16
"""On few cores, so that some requests may read and write their JSON while others compute."""

MOST_WITH_BATCHING: Final = 1024


def rest_threads(settings: Settings, *, script: bool, models: int) -> int:
    """The threads of one model server that has so many ``models``.

    Each caller gets one if there is a ``script``, which sends as many calls at a time, or if there are
    several models: requests that wait for one must not delay the others. Else more than the cores keep
    busy are of no use, unless requests wait to be batched. Never more than the control group allows.
    """
    wanted = 0
    if script or models != 1:
        wanted = settings.gunicorn_workers * settings.gunicorn_threads
    elif settings.enable_batching:  # one set of batches runs while the next one fills
        wanted = min(2 * settings.max_batch_size * settings.num_batch_threads, MOST_WITH_BATCHING)
    enough = max(FEWEST, THREADS_PER_CORE * settings.machine.cores)
    return min(max(enough, wanted), settings.machine.most_threads)
