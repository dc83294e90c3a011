"""The images of the official binary, built to their last step: a script stands in for the binary."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from support.archives import STAND_IN
from support.building import ROOT
from support.containers import container, docker, mounted

pytestmark = pytest.mark.timeout(1200)
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


@pytest.fixture(scope="module")
def _sources(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("sources")
    program = folder / "tensorflow_model_server"
    program.write_text("#!/usr/bin/python3\n" + STAND_IN.read_text())
    program.chmod(0o755)
    asked_for = (ROOT / "container" / "check-cuda").read_text().partition("ldconfig -p")[2]
    cuda = CUDA.format(libraries=" ".join(re.findall(r"lib\w+\.so\.\d+", asked_for)))
    names = (f"tensorflow/serving:{TAG}", f"tensorflow/serving:{TAG}-gpu"), (f"nvidia/cuda:{TAG}",)
    for text, tags in zip((BINARY, cuda), names, strict=True):
        (folder / "Dockerfile").write_text(text)
        docker("build", *(word for tag in tags for word in ("-t", tag)), str(folder))


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def image(request: pytest.FixtureRequest, _sources: None) -> str:
    return built(request.param)


def flags(words: str) -> set[str]:
    """Names and constant values of a model server's flags: paths and ports of the run left out."""
    run_time = (
        "--port=",
        "--rest_api_port=",
        "--grpc_socket_path=",
        "--model_config_file=",
        "--monitoring_config_file=",
    )
    return {
        word.partition("=")[0] if word.startswith(run_time) else word
        for word in words.split()
        if word.startswith("--")
    }


def test_the_binary_on_path_is_run_with_the_embedded_servers_arguments(image: str, plain: Path) -> None:
    """An archive is served by the binary; only what closes the other server to strangers differs."""
    with container(*mounted(plain), image=image, env={"STAND_IN_HALVES": "1"}) as running:
        assert running.invoke('{"instances": [1.0, 2.0]}').json == {"predictions": [2.5, 3.0]}
        (official,) = [
            words for _, words in running.processes().values() if "/tensorflow_model_server" in words
        ]
    with container(*mounted(plain)) as running:
        (embedded,) = [words for _, words in running.processes().values() if "tfs_proxy.embedded" in words]

    assert "/usr/bin/tensorflow_model_server --port=" in official
    assert flags(official) - flags(embedded) == {"--enable_profiler=false"}
    assert flags(embedded) - flags(official) == {"--management_on_socket_only=true"}


def test_the_list_of_contents_has_the_binary(image: str) -> None:
    """The last step of the build lists the binary by its version, and the packages beside it."""
    shown = docker("run", "--rm", "--entrypoint", "cat", image, "/usr/share/tfs-proxy/sbom.cdx.json")
    by_name = {each["name"]: each for each in json.loads(shown)["components"]}

    assert by_name["tensorflow_model_server"]["version"] == TAG
    assert by_name["falcon"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert "tfs-proxy" in by_name
