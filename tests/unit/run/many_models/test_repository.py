"""The repository of models that come and go, as Triton's clients see it, over stacks that are played."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from support.fake_stacks import Fleet, Part, admit_all
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.many_models.archives import model_folder
from tfs_proxy.run.many_models.on_demand import OnDemandModels
from tfs_proxy.run.many_models.registry import ModelRegistry
from tfs_proxy.run.many_models.repository import LoadedModels
from tfs_proxy.run.open_inference import InferenceTimes, OpenInferenceApi
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.values.errors import ModelLoadError
from tfs_proxy.wire.http_messages import HttpRequest
from tfs_proxy.wire.routes import answer_by

LOAD_SECONDS = 30.0
SERVED: Mapping[str, Mapping[str, Collection[int]]] = {"a": {"a": (1, 2)}, "b": {"b.x": (1,), "b.y": (3,)}}
"""What is in the archives; that of c is a script that is the model."""


class Client:
    """Sends requests to the protocol's API; with ``folder`` its archives are loaded on demand."""

    def __init__(self, folder: Path | None, failing: Exception | None = None) -> None:
        fleet = Fleet(lambda name, _url: Part(0.0, failing if name == "c" else None))
        self.registry = ModelRegistry(fleet.launch, None, admit_all)
        on_demand = None
        if folder is not None:
            for name in "abc":
                (folder / f"{name}.tar.gz").write_bytes(b"")
            on_demand = OnDemandModels(self.registry, model_folder(str(folder)), tuple)
        self.models = LoadedModels(
            self.registry, lambda name: SERVED.get(name, {}), on_demand, LOAD_SECONDS, is_published=True
        )
        readiness = Readiness(Heartbeats(1.0))
        api = OpenInferenceApi(lambda: readiness, self.models, InferenceTimes, {}, Path("no router"))
        self._api = api.routes

    async def send(self, method: str, path: str, **fields: Any) -> tuple[int, Any]:
        """Status and parsed body of the answer."""
        body = json.dumps(fields).encode() if fields else b""
        response = await answer_by(self._api, HttpRequest(method, path, {}, body))
        assert response is not None
        return response.status, json.loads(response.body)

    async def index(self) -> list[tuple[str, str | None, str]]:
        """Name, version and state of each entry."""
        status, entries = await self.send("POST", "/v2/repository/index")
        assert status == 200
        return [(entry["name"], entry.get("version"), entry["state"]) for entry in entries]


def play(
    scene: Callable[[Client], Awaitable[None]], folder: Path | None = None, failing: Exception | None = None
) -> None:
    """Play a scene, and unload all; a load of c ends with ``failing``."""

    async def run() -> None:
        client = Client(folder, failing)
        await scene(client)
        await client.registry.close()

    asyncio.run(run())


def test_the_life_of_a_model_of_a_folder(tmp_path: Path) -> None:
    """Listed, loaded by its name alone, listed by what requests call its models, and unloaded."""

    async def scene(client: Client) -> None:
        others = [("a", None, "UNAVAILABLE"), ("b", None, "UNAVAILABLE"), ("c", None, "UNAVAILABLE")]
        assert await client.index() == others
        assert await client.send("POST", "/v2/repository/models/b/load") == (200, {})
        assert await client.send("POST", "/v2/repository/models/b/load") == (200, {})
        loaded = [("b.x", "1", "READY"), ("b.y", "3", "READY")]
        assert await client.index() == [others[0], *loaded, others[2]]
        assert client.models.served() == ["b.x", "b.y"]
        assert await client.send("POST", "/v2/repository/models/b/unload") == (200, {})
        assert await client.index() == others

    play(scene, tmp_path)


def test_versions_ascend_and_a_script_model_has_one(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        for name in "ca":
            await client.send("POST", f"/v2/repository/models/{name}/load")
        ready = [("a", "1", "READY"), ("a", "2", "READY"), ("c", "1", "READY")]
        assert [entry for entry in await client.index() if entry[1]] == ready
        assert client.models.served() == ["a"]
        status, body = await client.send("GET", "/v2/models/stats")
        assert status == 200
        assert [(stats["name"], stats["version"]) for stats in body["model_stats"]] == [
            entry[:2] for entry in ready
        ]
        assert await client.send("GET", "/v2/models/b/stats") == (404, {"error": "model b is not loaded"})

    play(scene, tmp_path)


def test_without_a_folder_a_load_says_where_the_model_is() -> None:
    async def scene(client: Client) -> None:
        load = "/v2/repository/models/a/load"
        status, body = await client.send("POST", load)
        assert status == 400
        assert '{"parameters": {"url": "/PATH/TO/MODEL"}}' in body["error"]
        assert await client.send("POST", load, parameters={"url": "/opt/ml/models/a/model"}) == (200, {})
        assert client.registry.get("a").url == "/opt/ml/models/a/model"
        assert await client.send("POST", load) == (200, {})
        assert (await client.send("POST", load, parameters={"url": "/x"}))[0] == 409
        assert (await client.send("POST", "/v2/repository/models/-/load", parameters={"url": "/x"}))[0] == 400

    play(scene)


def test_a_load_that_fails_says_why(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        status, body = await client.send("POST", "/v2/repository/models/c/load")
        assert (status, "it is broken" in body["error"]) == (400, True)
        assert (await client.send("POST", "/v2/repository/models/nowhere/load"))[0] == 404
        assert (await client.send("POST", "/v2/repository/models/nowhere/unload"))[0] == 404
        config = await client.send("POST", "/v2/repository/models/a/load", parameters={"config": "{}"})
        assert config == (400, {"error": "parameter config of a load is not supported: only url is"})

    play(scene, tmp_path, ModelLoadError("it is broken."))
