"""The official binary's place, taken by a stand-in: the same supervisor gives it the same arguments."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import STAND_IN
from support.containers import EMBEDDED, container, docker, mounted

IMAGE = "tfs-proxy:stand-in"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image on the embedded target with an executable named tensorflow_model_server, as in `official`."""
    folder = tmp_path_factory.mktemp("image")
    program = folder / "tensorflow_model_server"
    program.write_text("#!/usr/bin/python3\n" + STAND_IN.read_text())
    program.chmod(0o755)
    copied = "COPY tensorflow_model_server /usr/bin/tensorflow_model_server"
    (folder / "Dockerfile").write_text(f"FROM {EMBEDDED}\n{copied}\n")
    docker("build", "-t", IMAGE, str(folder))
    yield IMAGE
    docker("rmi", "-f", IMAGE, check=False)


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
    """It is found before the embedded server; only what closes it to others differs, because it has no flag."""
    with container(*mounted(plain), image=image) as running:
        assert running.invoke('{"instances": [1.0]}').json["predictions"][0]["path"] == (
            "/v1/models/half_plus_two:predict"
        )
        (official,) = [
            words for _, words in running.processes().values() if "/tensorflow_model_server" in words
        ]
    with container(*mounted(plain)) as running:
        (embedded,) = [words for _, words in running.processes().values() if "tfs_proxy.embedded" in words]

    assert "/usr/bin/tensorflow_model_server --port=" in official
    assert flags(official) - flags(embedded) == {"--enable_profiler=false"}
    assert flags(embedded) - flags(official) == {"--management_on_socket_only=true"}
