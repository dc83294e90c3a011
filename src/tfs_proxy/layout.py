"""Paths below one root: a model folder as SageMaker lays it out, and a run's own workspace."""

from dataclasses import dataclass
from pathlib import Path

SAGEMAKER_MODEL_DIR = Path("/opt/ml/model")
SERVING_BASE_PATH = "/models"
"""The models' folder in the image tensorflow/serving: a folder for each model, in it one for each version."""
ARCHIVE_NAME = "model.tar.gz"
DEFAULT_PROGRAM = "inference.py"


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """A model folder (``/opt/ml/model``, or any unpacked archive): docs/reference/aws-container.md.

    ``program`` is the script's name below ``code/``.
    """

    root: Path
    program: str = DEFAULT_PROGRAM

    @property
    def code(self) -> Path:
        """The script's folder; never searched for models."""
        return self.root / "code"

    @property
    def script(self) -> Path:
        """The user's script."""
        return self.code / self.program

    def with_program(self, program: str) -> "ModelLayout":
        """This folder with the script called ``program``, if it exists."""
        named = ModelLayout(self.root, program)
        return named if named.script.is_file() else self

    @property
    def lib(self) -> Path:
        """Vendored packages; if it exists, requirements are not installed."""
        return self.code / "lib"

    @property
    def requirements(self) -> Path:
        """What to install for the script."""
        return self.code / "requirements.txt"

    @property
    def wheels(self) -> Path:
        """Wheels to install requirements from on a machine without a network."""
        return self.code / "wheels"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder of one run, removed at its end. Short names: a unix socket's path has 107 bytes."""

    root: Path

    @property
    def model(self) -> Path:
        """Where an archive is unpacked."""
        return self.root / "model"

    @property
    def packages(self) -> Path:
        """A virtual environment with what requirements.txt asks for."""
        return self.root / "packages"

    @property
    def control_socket(self) -> Path:
        """The supervisor's control API."""
        return self.root / "control.sock"

    @property
    def heartbeat_socket(self) -> Path:
        """The socket that workers send heartbeats to."""
        return self.root / "beat.sock"

    @property
    def worker_sockets(self) -> Path:
        """Locked byte by byte: which worker accepts on which socket."""
        return self.root / "worker-sockets"

    @property
    def journal(self) -> Path:
        """The requests that each worker has begun, in a file named by its pid."""
        return self.root / "journal"

    def grpc_socket(self, index: int) -> Path:
        """Where model server ``index`` listens for gRPC."""
        return self.root / f"tfs{index}.sock"

    def grpc_gate(self, index: int) -> Path:
        """A link to `grpc_socket` that is there while nginx may send calls to the model server."""
        return self.root / f"gate{index}.sock"

    @property
    def nginx(self) -> Path:
        """The prefix of nginx: its configuration, temporary files and pid file."""
        return self.root / "nginx"

    @property
    def model_config(self) -> Path:
        """The model server's ``--model_config_file``."""
        return self.root / "models.pbtxt"

    @property
    def batching_config(self) -> Path:
        """The model server's ``--batching_parameters_file``."""
        return self.root / "batching.pbtxt"
