"""The wheel by itself: what new users do with it, on each Python, where there is no clone of the project."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fresh_environment import FreshEnvironment, interpreter, write_houses

PYTHONS = ("3.11", "3.12", "3.13")
HOUSE = {"instances": [{"rooms": [3], "area": [80]}]}
PRICE = {"predictions": [[310.0]]}


@pytest.fixture(scope="module", params=PYTHONS)
def fresh(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FreshEnvironment]:
    """An environment with the wheel and its extra ``embedded``, and a Keras file that was made in it."""
    environment = FreshEnvironment(interpreter(request.param), tmp_path_factory.mktemp("fresh"))
    environment.install(f"{wheel}[embedded]")
    write_houses(environment)
    yield environment
    environment.remove()


def ask(url: str) -> object:
    request = urllib.request.Request(
        f"{url}/invocations", json.dumps(HOUSE).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_it_says_its_version_and_lists_settings(fresh: FreshEnvironment, wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    assert version in fresh.run("tfs-proxy --version")
    assert "SAGEMAKER_BIND_TO_PORT" in fresh.run("tfs-proxy settings")


def test_it_checks_what_it_has_packed(fresh: FreshEnvironment) -> None:
    fresh.write("house.csv", "rooms,area\n3,80\n")
    said = fresh.run("tfs-proxy check houses.tar.gz --request house.csv --content-type text/csv")
    assert "area float[?, 1], rooms float[?, 1] -> price float[?, 1]" in said
    assert "Answer: 200 application/json" in said


def test_it_serves_what_it_has_packed(fresh: FreshEnvironment) -> None:
    with fresh.serving("houses.tar.gz") as url:
        assert ask(url) == PRICE
        fresh.write("house.json", json.dumps(HOUSE))
        assert json.loads(fresh.run(f"tfs-proxy ask {url} house.json")) == PRICE
        for page in ("/", "/openapi.json", "/metrics"):
            assert urllib.request.urlopen(url + page, timeout=60).status == 200
