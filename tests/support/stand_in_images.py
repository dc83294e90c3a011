"""Images in the place of those that only a registry has, and the project's images that are built on them."""

import os
import re
import subprocess
from pathlib import Path

from support.archives import STAND_IN
from support.containers import docker

ROOT = Path(__file__).parents[2]
TAG = "stand-in"
"""The tag of the images made here: whatever else a machine has under these names, it keeps."""

BINARY = """\
FROM debian:trixie-slim
COPY tensorflow_model_server /usr/bin/
"""
CUDA = """\
FROM debian:trixie-slim
RUN for each in {libraries}; do cp /usr/lib/*/gconv/UTF-16.so /usr/local/lib/$each; done && ldconfig
"""
"""A base with a library of each name, made of one that has no name of its own."""


def built(name: str) -> str:
    """`make image-NAME` on stand-ins for its images; the tag of what comes of it, for cpu and gpu."""
    tag = f"{name}-{TAG}"
    arguments = ["--build-arg", f"TFS_VERSION={TAG}"]
    if name == "gpu":
        # Only the CPU's takes the large libraries, which bring nothing that the other stages need.
        arguments += ["--build-arg", f"BASE_IMAGE=nvidia/cuda:{TAG}", "--build-arg", "SCRIPT_LIBRARIES=false"]
    command = [str(ROOT / "scripts" / "build-image"), name, *arguments]
    env = {**os.environ, "IMAGE_TAG": tag}
    for variable in ("no_proxy", "NO_PROXY"):
        # What tests/conftest.py adds would keep the layers of `make image-embedded` from being used again.
        env[variable] = env[variable].removesuffix("127.0.0.1,localhost").removesuffix(",")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return f"tfs-proxy:{tag}"


def make_sources(folder: Path) -> None:
    """The official image, for a CPU and a GPU, with a script as its binary, and CUDA's base with empty libraries."""
    program = folder / "tensorflow_model_server"
    program.write_text("#!/usr/bin/python3\n" + STAND_IN.read_text())
    program.chmod(0o755)
    asked_for = (ROOT / "container" / "check-cuda").read_text().partition("ldconfig -p")[2]
    cuda = CUDA.format(libraries=" ".join(re.findall(r"lib\w+\.so\.\d+", asked_for)))
    names = (f"tensorflow/serving:{TAG}", f"tensorflow/serving:{TAG}-gpu"), (f"nvidia/cuda:{TAG}",)
    for text, tags in zip((BINARY, cuda), names, strict=True):
        (folder / "Dockerfile").write_text(text)
        docker("build", *(word for tag in tags for word in ("-t", tag)), str(folder))
