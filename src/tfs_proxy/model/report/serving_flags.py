"""Flags of tensorflow_model_server that choose models and ports."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from tfs_proxy.model.discover import SAVED_MODEL_FILES
from tfs_proxy.settings.parsers import GRPC_PORT, HIGHEST_PORT
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import SERVING_BASE_PATH

REST_PORT = 8501
DEFAULT_NAME = "model"


class ServingFlags(Struct, frozen=True):
    """Flags of a command line: ``--name=value``, or ``--name`` and ``value``."""

    words: tuple[str, ...]

    def value(self, name: str) -> str:
        """Return the value of the last flag of this name; "" if there is none."""
        value = ""
        for word, following in pairwise((*self.words, "")):
            if word == f"--{name}":
                value = following
            elif word.startswith(f"--{name}="):
                value = word.partition("=")[2]
        return value

    def port(self, name: str) -> int:
        """Return the port; 0 if it is off or invalid, which the model server refuses."""
        text = self.value(name)
        return int(text) if text.isdecimal() and int(text) <= HIGHEST_PORT else 0


def as_the_image(words: Sequence[str], settings: Settings) -> ServingFlags:
    """Add the flags of tensorflow/serving's own entry point in front of ``words``.

    Raises SettingsError if nothing says which of several models is meant.
    """
    user_flags = ServingFlags(tuple(words))
    base = settings.serving_base_path or SERVING_BASE_PATH
    name = settings.serving_model_name or DEFAULT_NAME
    named = [
        settings.serving_model_name,
        user_flags.value("model_base_path"),
        user_flags.value("model_config_file"),
    ]
    if not any(named):
        names = sorted(path.name for path in model_folders(Path(base)))
        if len(names) > 1 and DEFAULT_NAME not in names:
            raise SettingsError(
                f"{base} holds several models, {', '.join(names)}: name the one to serve in MODEL_NAME, "
                "or list them in a file for --model_config_file."
            )
        name = names[0] if len(names) == 1 else DEFAULT_NAME
    ports = (f"--port={GRPC_PORT}", f"--rest_api_port={REST_PORT}")
    model = (f"--model_name={settings.model_name or name}", f"--model_base_path={base}/{name}")
    return ServingFlags((*ports, *model, *words))


def model_folders(base: Path) -> list[Path]:
    """Folders below ``base`` that hold at least one version, in tensorflow/serving's layout."""
    models = (path for name in SAVED_MODEL_FILES for path in base.glob(f"*/[0-9]*/{name}"))
    return sorted({path.parent.parent for path in models})


WORKERS_VARIABLE = "SAGEMAKER_GUNICORN_WORKERS"


def capacity(settings: Settings, *, models: bool) -> str:
    """Describe workers, model servers, their threads and batches; only workers without ``models``."""
    threads = (
        f" of {settings.gunicorn_threads} threads" if settings.gunicorn_worker_class == "gthread" else ""
    )
    why = settings.machine.workers.reason
    if WORKERS_VARIABLE in settings.given:
        why = f"set by {WORKERS_VARIABLE}"
    count = _count(settings.gunicorn_workers, "worker")
    workers = f"{count} ({settings.gunicorn_worker_class}){threads}, {why}"
    if not models:
        return workers
    servers = _count(settings.instance_count, "model server")
    intra = settings.intra_op_parallelism or "auto"
    inter = settings.inter_op_parallelism or settings.machine.tensorflow_threads or "auto"
    if settings.inter_op_reason:
        inter = f"{inter} ({settings.inter_op_reason})"
    batching = "no batching"
    if settings.enable_batching:
        batching = (
            f"batches of up to {settings.max_batch_size} records after {settings.batch_timeout_micros} µs, "
            f"{settings.num_batch_threads} at a time, {settings.max_enqueued_batches} waiting"
        )
    return f"{workers}; {servers}, intra-op {intra}, inter-op {inter}, {batching}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
