"""The wheel by itself: what new users do with it, on each Python, where there is no clone of the project."""

import json
import urllib.request
from pathlib import Path

import pytest

from support.fresh_environment import FreshEnvironment, interpreter

PYTHONS = ("3.11", "3.12", "3.13")
HOUSES = """
import keras, numpy
rooms, area = keras.Input((1,), name="rooms"), keras.Input((1,), name="area")
price = keras.layers.Dense(1, name="price")
model = keras.Model({"rooms": rooms, "area": area}, price(keras.layers.Concatenate()([rooms, area])))
price.set_weights([numpy.array([[20.0], [3.0]]), numpy.array([10.0])])
model.save("houses.keras")
"""
HOUSE = {"instances": [{"rooms": [3], "area": [80]}]}
PRICE = {"predictions": [[310.0]]}


@pytest.fixture(scope="module", params=PYTHONS)
def fresh(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> FreshEnvironment:
    """An environment with the wheel and its extra ``embedded``, and a Keras file that was made in it."""
    environment = FreshEnvironment(interpreter(request.param), tmp_path_factory.mktemp("fresh"))
    environment.install(f"{wheel}[embedded]")
    (environment.folder / "train.py").write_text(HOUSES)
    environment.run("python train.py")
    environment.run("tfs-proxy pack houses.keras -o houses.tar.gz")
    return environment


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
    (fresh.folder / "house.csv").write_text("rooms,area\n3,80\n")
    said = fresh.run("tfs-proxy check houses.tar.gz --request house.csv --content-type text/csv")
    assert "area float[?, 1], rooms float[?, 1] -> price float[?, 1]" in said
    assert "Answer: 200 application/json" in said


def test_it_serves_what_it_has_packed(fresh: FreshEnvironment) -> None:
    with fresh.serving("houses.tar.gz") as url:
        assert ask(url) == PRICE
        for page in ("/", "/openapi.json", "/metrics"):
            assert urllib.request.urlopen(url + page, timeout=60).status == 200
