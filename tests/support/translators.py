"""The translator as a process of its own, without a supervisor."""

import json
import subprocess
import sys
from pathlib import Path

import grpc

from support.grpc_calls import SECONDS

INFER = "/inference.GRPCInferenceService/ModelInfer"


class Translator:
    """The translator as a process, in front of the model servers to which `lead` leads; ``more`` are options."""

    def __init__(self, folder: Path, **more: object) -> None:
        self.socket = folder / "translator.sock"
        self._gates = [folder / f"gate{index}.sock" for index in range(2)]
        options: dict[str, object] = {
            "socket": self.socket,
            "control_socket": folder / "control.sock",
            "gates": list(map(str, self._gates)),
            "message_bytes": 1 << 20,
            "answer_seconds": SECONDS,
            "by_script": False,
            "decoded_bytes": 1 << 30,
        }
        self.log = folder / "translator.log"
        with self.log.open("wb") as log:
            word = json.dumps({**options, **more}, default=str)
            command = [sys.executable, "-m", "tfs_proxy.worker.translator", word]
            self.process = subprocess.Popen(command, stderr=log)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        grpc.channel_ready_future(self.channel).result(SECONDS)
        self.infer = self.channel.unary_unary(INFER)

    def lead(self, *sockets: Path) -> None:
        """Send calls to the model servers at these sockets."""
        for index, gate in enumerate(self._gates):
            gate.unlink(missing_ok=True)
            if index < len(sockets):
                gate.symlink_to(sockets[index])

    def descriptors(self) -> int:
        """How many files it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def close(self) -> None:
        """End it, as the supervisor does."""
        self.channel.close()
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0
