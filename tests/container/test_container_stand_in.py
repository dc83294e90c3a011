"""The images of the official binary, built to their last step: a script stands in for the binary."""

import json
from pathlib import Path

import pytest

from support import stand_in_images
from support.containers import container, docker, mounted

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def _sources(tmp_path_factory: pytest.TempPathFactory) -> None:
    stand_in_images.make_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def image(request: pytest.FixtureRequest, _sources: None) -> str:
    return stand_in_images.built(request.param)


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

    assert by_name["tensorflow_model_server"]["version"] == stand_in_images.TAG
    assert by_name["falcon"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert "tfs-proxy" in by_name
