"""Archives for the containers, and one sentence if no container can be started."""

from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from support import containers
from support.archives import pack

HALVES = """
def input_handler(data, context):
    return data.read().decode()

def output_handler(response, context):
    return response.content, "application/json"
"""


MEASURED: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in MEASURED:
        terminalreporter.write_line(f"measured: {line}")


@pytest.fixture
def noted() -> Callable[[str], None]:
    return MEASURED.append


@pytest.fixture(scope="session", autouse=True)
def _containers() -> None:
    """Skip, and say why, if there is no engine or no image."""
    reason = containers.why_not()
    if reason:
        pytest.skip(f"nothing is run in containers here: {reason}")


@pytest.fixture(scope="session")
def plain(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("plain") / "model.tar.gz"
    return pack(target, {}, {"half_plus_two": saved_models / "half_plus_two"})


@pytest.fixture(scope="session")
def scripted(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """half_plus_two with a script of two halves, both of which pass on what they get."""
    target = tmp_path_factory.mktemp("scripted") / "model.tar.gz"
    return pack(target, {"code/inference.py": HALVES}, {"half_plus_two": saved_models / "half_plus_two"})


@pytest.fixture(scope="session")
def s3_address(plain: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """An s3:// address of half_plus_two on a stand-in for S3, and the variables that lead there."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    env = {
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    session = boto3.Session("test", "test", region_name="us-east-1")
    client = session.client("s3", endpoint_url=env["AWS_ENDPOINT_URL_S3"])
    client.create_bucket(Bucket="models")
    client.upload_file(str(plain), "models", "prod/model.tar.gz")
    yield "s3://models/prod/model.tar.gz", env
    server.stop()
