"""What is served in each kind of stack that files share: the words of the command, and its settings."""

import json
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from contract.doors import BARE, pack
from contract.scripts import ECHO, HALVES, HANDLER, SCRIPT_MODEL, STREAM

Served = tuple[tuple[str, ...], Mapping[str, str]]

MODELS = (
    "bytes half_plus_two matrix mixed_batch multi_io regress_classify scalar special types versions".split()
)
"""Those that the golden answers were recorded on."""
EMBEDDED = ("--model-server", "embedded")
SMALL = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2"}
KEY = "k" * 32
SAFE_PORTS = 40
VARIABLE = "VARIABLE_{:02}"


def _models(models: Path, folder: Path, env: Mapping[str, str]) -> Served:
    for name in MODELS:
        (folder / name).symlink_to(models / name)
    settings = {
        **SMALL,
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two",
        "SAGEMAKER_TFS_VERSION_LABELS": "stable=1,canary=2",
        "TFS_PROXY_GRPC_PORT": "0",
    }
    return ("serve", str(folder), *EMBEDDED), {**settings, **env}


def nginx(models: Path, folder: Path) -> Served:
    """Models without a script, behind nginx."""
    return _models(models, folder, {})


def keyed(models: Path, folder: Path) -> Served:
    """The same, which asks for a key."""
    keys = folder / "keys"
    keys.write_text(f"ann {KEY}")
    return _models(models, folder, {"TFS_PROXY_API_KEYS": str(keys)})


def bare(models: Path, folder: Path) -> Served:
    """The same without nginx."""
    return _models(models, folder, BARE)


def script(models: Path, folder: Path) -> Served:
    """Two models behind a script of two halves, and the other doors closed."""
    contents = {name: models / name for name in ("half_plus_two", "gate")}
    archive = pack(folder / "model.tar.gz", {"code/inference.py": HALVES, "words.txt": "a word"}, contents)
    env = {
        **SMALL,
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two",
        "SAGEMAKER_GUNICORN_WORKERS": "2",
        "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "4",
        "TFS_PROXY_DOORS": "none",
    }
    return ("serve", str(archive), *EMBEDDED), env


def queue(models: Path, folder: Path) -> Served:
    """A model that can be held, with the shortest queue of batches, without nginx."""
    env = {
        **BARE,
        "SAGEMAKER_TFS_ENABLE_BATCHING": "true",
        "SAGEMAKER_TFS_MAX_BATCH_SIZE": "1",
        "SAGEMAKER_TFS_NUM_BATCH_THREADS": "1",
        "SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES": "1",
    }
    return ("serve", str(models / "gate"), *EMBEDDED), env


def pipeline(models: Path, folder: Path) -> Served:
    """A script that doubles numbers, then half_plus_two."""
    first = folder / "doubler.tar.gz"
    pack(first, {"code/inference.py": SCRIPT_MODEL})
    second = pack(folder / "half.tar.gz", {}, {"half_plus_two": models / "half_plus_two"})
    accept = ("--env", "1:SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT=text/csv")
    return ("serve", str(first), str(second), *accept, *EMBEDDED), {}


def _platform(env: Mapping[str, str]) -> Callable[[Path, Path], Served]:
    """A script as SageMaker's platform starts it: at every address, with ports of a range, and 100 variables of 32 KB together."""

    def served(models: Path, folder: Path) -> Served:
        contents = {"half_plus_two": models / "half_plus_two"}
        archive = pack(folder / "model.tar.gz", {"code/inference.py": ECHO}, contents)
        low = _free_ports()
        settings = {
            "SAGEMAKER_SAFE_PORT_RANGE": f"{low}-{low + SAFE_PORTS - 1}",
            "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv",
            "C" * 1024: "v" * 1024,
            **env,
        }
        others = {VARIABLE.format(number): "a b=c;" + "x" * 290 for number in range(100 - len(settings))}
        return ("serve", str(archive), *EMBEDDED, "--host", "0.0.0.0"), {**settings, **others}

    return served


def _free_ports() -> int:
    """The first of some ports in a row that nothing listens on, below those that the kernel gives to clients."""
    while True:
        low = random.randrange(21_000, 31_000)
        with ExitStack() as held, suppress(OSError):
            for port in range(low, low + SAFE_PORTS):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return low


def archives(models: Path, folder: Path) -> Path:
    """A folder of archives: two with a model, one of them with a script, and scripts that are the model."""
    half = {"half_plus_two": models / "half_plus_two"}
    pack(folder / "plain.tar.gz", {}, half)
    pack(folder / "handler.tar.gz", {"code/inference.py": HANDLER, "words.txt": "a word"}, half)
    pack(folder / "stream.tar.gz", {"code/inference.py": STREAM}, half)
    pack(folder / "model_fn.tar.gz", {"code/inference.py": SCRIPT_MODEL, "factor.json": json.dumps(2)})
    pack(folder / "broken.tar.gz", {"code/inference.py": "import no_such_module_here\n"}, half)
    (folder / "nothing.tar.gz").write_bytes(b"no archive")
    return folder


def many(models: Path, folder: Path) -> Served:
    """A run without a model."""
    env = {"SAGEMAKER_MULTI_MODEL": "true", "TFS_PROXY_GRPC_PORT": "0", "TFS_PROXY_MODEL_FOLDERS": "/"}
    return ("serve", *EMBEDDED), env


def folder_of_many(models: Path, folder: Path) -> Served:
    """Models that the first request loads."""
    return ("serve", "--multi-model", str(archives(models, folder)), *EMBEDDED), {}


KINDS: Mapping[str, Callable[[Path, Path], Served]] = {
    "nginx": nginx,
    "bare": bare,
    "keyed": keyed,
    "script": script,
    "queue": queue,
    "platform": _platform({}),
    "platform, bare": _platform(BARE),
    "pipeline": pipeline,
    "many": many,
    "folder": folder_of_many,
}
