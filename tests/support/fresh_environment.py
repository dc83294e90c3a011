"""Virtual environments that have a wheel and nothing else of ours, made by any Python that this machine has."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.prefix) / "bin" / "uv"
PRINTED_COMMAND = re.compile(r"(?:uv )?pip install (?:-\S+ )*(?:'[^']+'|[^\s'),]+)")
RUN_SECONDS = 600.0
HOUSES = """
import keras, numpy
rooms, area = keras.Input((1,), name="rooms"), keras.Input((1,), name="area")
price = keras.layers.Dense(1, name="price")
model = keras.Model({"rooms": rooms, "area": area}, price(keras.layers.Concatenate()([rooms, area])))
price.set_weights([numpy.array([[20.0], [3.0]]), numpy.array([10.0])])
model.save("houses.keras")
"""
READY = re.compile(rb"ready: (http://localhost:[0-9]+)")


def interpreter(version: str) -> str:
    """A Python of this version: uv's, PATH's or pyenv's. Skips the test if there is none."""
    asked = [str(UV), "python", "find", "--system", "--no-project", "--no-python-downloads", version]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in (found, shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}")):
        if (
            path
            and subprocess.run(
                [path, "-c", "import ensurepip, venv"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return str(path)
    pytest.skip(f"this machine has no Python {version}")


class FreshEnvironment:
    """A virtual environment, and an empty folder in which its programs run."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.bin = folder / "venv" / "bin"
        self.log = self.folder / "serve.log"
        subprocess.run([python, "-m", "venv", self.bin.parent], check=True)
        (self.bin / "uv").symlink_to(UV)  # whoever installs with uv has it on PATH

    @property
    def env(self) -> dict[str, str]:
        """The variables of a shell that has activated it, far from this clone."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        path = [part for part in kept["PATH"].split(os.pathsep) if not Path(part).is_relative_to(ROOT)]
        return {**kept, "PATH": os.pathsep.join([str(self.bin), *path]), "VIRTUAL_ENV": str(self.bin.parent)}

    def write(self, name: str, text: str) -> None:
        """Write a file of its folder."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def install(self, what: str) -> None:
        """Install by uv, which has the wheels of tensorflow in its cache."""
        subprocess.run([UV, "pip", "install", "--quiet", "--python", self.bin / "python", what], check=True)

    def attempt(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell; its standard error is at the end of its output."""
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env={**self.env, **variables}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS, check=False,
        )  # fmt: skip

    def run(self, command: str, **variables: str) -> str:
        """What the line prints; it must succeed."""
        done = self.attempt(command, **variables)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def remove(self) -> None:
        """Remove its packages, which take more than a gigabyte."""
        shutil.rmtree(self.bin.parent)

    def said(self) -> str:
        """What the last server has written."""
        return self.log.read_text()

    @contextmanager
    def serving(self, model: str, **variables: str) -> Iterator[str]:
        """The address of `tfs-proxy serve MODEL`, which must end well."""
        with self.log.open("wb") as file:
            process = subprocess.Popen(
                [self.bin / "tfs-proxy", "serve", model, "--port", "0"],
                cwd=self.folder, env={**self.env, **variables}, stdout=file, stderr=file,
            )  # fmt: skip
        try:
            yield wait_for_address(process, self.log)
        finally:
            process.terminate()
            status = process.wait(60)
        assert status == 0, self.said()


def write_houses(environment: FreshEnvironment) -> None:
    """Write houses.keras, and pack it as houses.tar.gz; 3 rooms on 80 m² cost 310."""
    environment.write("train.py", HOUSES)
    environment.run("python train.py")
    environment.run("tfs-proxy pack houses.keras -o houses.tar.gz")


def wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that serve prints once it is ready."""
    while process.poll() is None:
        if ready := READY.search(log.read_bytes()):
            return ready[1].decode()
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"serve has ended:\n{log.read_text()}")


def printed_command(said: str) -> str:
    """The command to install something in a message."""
    found = PRINTED_COMMAND.search(said)
    assert found is not None, f"it names no command to install something:\n{said}"
    return found[0]
