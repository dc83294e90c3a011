"""The gRPC router as a process of its own, without a supervisor."""

import subprocess
import sys
from pathlib import Path

import grpc

from support.grpc_calls import PREDICT, SECONDS
from tfs_proxy.multimodel.gates import GrpcGates


class Router:
    """The router as a process, with gates for the models of the tests; ``more`` are flags."""

    def __init__(self, folder: Path, instances: int, **more: object) -> None:
        self.gates_folder, self.socket = folder / "g", folder / "router.sock"
        self.gates_folder.mkdir()
        flags = {
            "socket": self.socket,
            "gates": self.gates_folder,
            "control-socket": folder / "control.sock",
            "requests": folder / "requests",
            "instances": instances,
            "message-bytes": 1 << 20,
            "wait-seconds": 5,
            "answer-seconds": SECONDS,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        words = [f"--{name}={value}" for name, value in flags.items()]
        self.log = folder / "router.log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "tfs_proxy.grpc_router", *words]
            self.process = subprocess.Popen(command, stderr=log)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        grpc.channel_ready_future(self.channel).result(SECONDS)
        self.call = self.channel.unary_unary(PREDICT)

    def gates(self, *models: str) -> GrpcGates:
        """The gates of a new archive."""
        return GrpcGates(self.gates_folder, models)

    def descriptors(self) -> int:
        """How many files it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def close(self) -> None:
        """End it, as the supervisor does."""
        self.channel.close()
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0
