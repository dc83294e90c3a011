"""Paths below a root: a model folder as SageMaker lays it out, a run's workspace, files that may be named."""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import DecodeError, Struct, json

from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.names import printable

SAGEMAKER_MODEL_DIR = Path("/opt/ml/model")
UNIVERSAL_CODE_DIRS = (Path("/opt/ml/code"), Path("/opt/ml/models/code"))
"""Folders of the script for archives without one in multi-model mode: AWS's container, and an older one."""

SERVING_BASE_PATH = "/models"
"""The models' folder in the image tensorflow/serving: a folder for each model, in it one for each version."""
WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
"""Path in a version's folder: requests that a model server answers before the version becomes available."""

ARCHIVE_NAME = "model.tar.gz"
DEFAULT_PROGRAM = "inference.py"
CSV_COLUMNS_FILE = Path("assets.extra") / "tfs_proxy_csv_columns"
"""Path in a version's folder: inputs in the order of CSV columns without a header, between commas."""

INPUT_NAMES_FILE = CSV_COLUMNS_FILE.with_name("tfs_proxy_input_names")
"""Path in a version's folder: a JSON object of the author's own names of inputs, with the graph's."""


@lru_cache(maxsize=64)
def recorded_names(folder: str | None) -> Mapping[str, str]:
    """Read the `INPUT_NAMES_FILE` in a version's folder, once; {} if there is none that can be read."""
    try:
        return (
            {}
            if folder is None
            else json.decode((Path(folder) / INPUT_NAMES_FILE).read_bytes(), type=dict[str, str])
        )
    except (OSError, DecodeError):
        return {}


def recorded_columns(folder: str | None) -> str | None:
    """Read the `CSV_COLUMNS_FILE` in a version's folder; None if there is none that can be read."""
    try:
        return None if folder is None else (Path(folder) / CSV_COLUMNS_FILE).read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def recorded_requests(folder: str | None) -> Path | None:
    """The `WARMUP_FILE` in a version's folder; None if there is none, or the folder is not known."""
    path = Path(folder) / WARMUP_FILE if folder is not None else None
    return path if path is not None and path.is_file() else None


class ModelLayout:
    """A model folder (``/opt/ml/model``, or any unpacked archive): docs/reference/aws-container.md.

    ``program`` is the script's name below ``code``, which is the folder of that name in it, or another one.
    """

    def __init__(self, root: Path, program: str = DEFAULT_PROGRAM, code: Path | None = None) -> None:
        self.root = root
        self.program = program
        self.code = code or root / "code"  # never searched for models
        self.script = self.code / program
        self.lib = self.code / "lib"  # vendored packages; if it exists, requirements are not installed
        self.requirements = self.code / "requirements.txt"
        self.wheels = self.code / "wheels"  # requirements are installed from it if there is no network

    @property
    def shown_script(self) -> Path:
        """The script as messages name it: within the model folder, or as it is if it lies elsewhere."""
        inside = self.script.is_relative_to(self.root)
        return self.script.relative_to(self.root) if inside else self.script

    def with_program(self, program: str) -> "ModelLayout":
        """A copy with the script ``program``, if that exists."""
        named = ModelLayout(self.root, program)
        return named if named.script.is_file() else self


class Workspace:
    """The folder of one run, removed at its end. Short names: a unix socket's path has 107 bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = root / "model"  # an archive is unpacked here
        self.packages = root / "packages"  # a virtual environment with what requirements.txt asks for
        self.deployment = root / "deployment.json"  # of a model of shared workers, which lock the file
        self.url = root / "url"  # the run's address for this machine, for the images' HEALTHCHECK
        self.control_socket = root / "control.sock"  # the supervisor's control API
        self.client_socket = root / "client.sock"  # the same, for requests that nginx passes on
        self.memory_ledger = root / "memory"  # memory of large requests in all workers
        self.journal = root / "journal"  # the requests that each worker has begun, in a file named by its pid
        self.metrics = root / "metrics"  # files of prometheus_client in which scripts' metrics are
        self.requests = root / "requests"  # lines of requests that have ended, by nginx or the workers
        self.translator_socket = root / "grpc.sock"  # the Open Inference Protocol over gRPC
        self.zygote = root / "zygote.sock"  # socket of the process that workers are forked from
        self.nginx = root / "nginx"  # its prefix: configuration, temporary files and pid file
        self.model_config = root / "models.pbtxt"  # the model server's --model_config_file
        self.monitoring_config = root / "monitoring.pbtxt"  # the model server's --monitoring_config_file
        self.batching_config = root / "batching.pbtxt"  # the model server's --batching_parameters_file

    def grpc_socket(self, index: int) -> Path:
        """Socket on which model server ``index`` listens for gRPC."""
        return self.root / f"tfs{index}.sock"

    def grpc_gate(self, index: int) -> Path:
        """Link to `grpc_socket` that exists while nginx may send calls to the model server."""
        return self.root / f"gate{index}.sock"


class LocalFiles(Struct, frozen=True):
    """The files that requests may name: those below ``folders``, which are paths without links."""

    folders: tuple[str, ...]

    @classmethod
    def below(cls, folders: Iterable[Path]) -> "LocalFiles":
        return cls(tuple(os.path.realpath(folder) for folder in folders))

    def check(self, member: str, path: str) -> None:
        """Raises SettingsError if a path, or an archive in it, leads elsewhere; ``s3://`` addresses pass."""
        if path.startswith("s3://") or os.sep in self.folders:
            return
        try:
            found = [Path(os.path.realpath(each)) for each in (path, Path(path, ARCHIVE_NAME))]
        except ValueError:  # a null byte
            found = [Path("\0")]
        if not all(any(real.is_relative_to(folder) for folder in self.folders) for real in found):
            raise SettingsError(
                f"{member} {printable(path)} can't be used: it is not below {', '.join(self.folders)}, or a "
                "link leads out of there. --files FOLDER allows another folder."
            )


ANYWHERE = LocalFiles((os.sep,))
