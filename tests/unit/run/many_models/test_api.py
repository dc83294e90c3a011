"""The HTTP of multi-model endpoints: every call with its code and body, over stacks that are played."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.fake_stacks import Fleet, Part, admit_all
from support.virtual_time import played, run_in_virtual_time
from tfs_proxy.run.many_models.api import PAGE_SIZE, ModelsApi
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.wire.http_messages import HttpRequest
from tfs_proxy.wire.routes import answer_by

SHAPE = '; send {"model_name": "NAME", "url": "/PATH/TO/MODEL"}'


class Client:
    """Sends requests to the API of a registry."""

    def __init__(self) -> None:
        self.fleet = Fleet(lambda _name, _url: Part())
        self.registry = ModelRegistry(self.fleet.launch, None, admit_all)
        self._api = ModelsApi(self.registry, 60.0).routes

    async def send(self, method: str, target: str, body: bytes = b"") -> tuple[int, Any]:
        """Status and parsed body of an answer that there must be."""
        path, _, query = target.partition("?")
        headers = {"content-type": "application/json"}
        response = await answer_by(self._api, HttpRequest(method, path, headers, body, query))
        assert response is not None
        return response.status, json.loads(response.body)

    async def load(self, name: str) -> None:
        """A load that goes well."""
        await self.send("POST", "/models", json.dumps({"model_name": name, "url": f"/m/{name}"}).encode())


def run(play: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Play with a client of its own."""

    async def scene() -> None:
        client = Client()
        await play(client)
        await client.registry.close()

    run_in_virtual_time(scene())


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "Input data was truncated"),
        (b"{", "Input data was truncated"),
        (b"\xff", "JSON is malformed"),
        (b"[" * 100_000, "Expected `object`"),
        (b'["a"]', "Expected `object`"),
        (b'{"url": "/m"}', "Object missing required field `model_name`"),
        (b'{"model_name": "a"}', "Object missing required field `url`"),
        (b'{"model_name": 1, "url": "/m"}', "Expected `str`, got `int` - at `$.model_name`"),
        (b'{"model_name": "a", "url": ""}', "url is not an absolute path on this machine"),
        (b'{"model_name": "a/b", "url": "/m"}', "model_name can't be a model's name, which has letters"),
        (b'{"model_name": "%s", "url": "/m"}' % (b"a" * 65), "model_name can't be a model's name"),
        (b'{"model_name": "a", "url": "m"}', "url is not an absolute path on this machine"),
        (b'{"model_name": "a", "url": "/m\\u0000"}', "url is not an absolute path on this machine"),
    ],
    ids=lambda value: str(value)[:40],
)
@played(run)
async def test_what_is_not_a_load_request_is_400(client: Client, *, body: bytes, fault: str) -> None:
    """The answer names the field at fault, and what is wrong with it."""
    status, answer = await client.send("POST", "/models", body)
    assert status == 400
    assert answer["error"].startswith(f"not a load request: {fault}")
    assert answer["error"].endswith(SHAPE) or fault.startswith(("model_name", "url"))
    assert client.fleet.stacks == []


def test_the_list_has_pages() -> None:
    """They follow each other while models come and go; a token that no page has given is a 400."""
    names = [f"m{number:03}" for number in range(2 * PAGE_SIZE + 1)]

    async def play(client: Client) -> None:
        await asyncio.gather(*(client.load(name) for name in names))
        _, first = await client.send("GET", "/models")
        await client.send("DELETE", f"/models/{names[0]}")
        await client.send("DELETE", f"/models/{names[PAGE_SIZE - 1]}")
        await client.load("m000a")
        _, second = await client.send("GET", f"/models?next_page_token={first['nextPageToken']}")
        _, third = await client.send("GET", f"/models?next_page_token={second['nextPageToken']}")
        assert [len(page["models"]) for page in (first, second, third)] == [PAGE_SIZE, PAGE_SIZE, 1]
        assert "nextPageToken" not in third
        listed = [model["modelName"] for page in (first, second, third) for model in page["models"]]
        assert listed == names
        for odd in ("", "YQ==", "a", "LS0", "%ff", "YQ&next_page_token=YQ"):
            status, answer = await client.send("GET", f"/models?next_page_token={odd}")
            assert (status, "next_page_token" in answer["error"]) == (400, True)

    run(play)
