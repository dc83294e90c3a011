"""A container that does not answer, or not to the end: the limits are minutes, which no test waits for."""

import asyncio
import json
import math
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import pytest

from support.endless import endless_server
from support.endpoints import described, of_image, variant
from support.remote_container import RemoteContainer, remote_container
from support.running import LOOPBACK
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.endpoint.aws_api import AwsError
from tfs_proxy.tools.endpoint.container import HostedContainer
from tfs_proxy.tools.endpoint.hosting import HostedEndpoint
from tfs_proxy.tools.endpoint.invoke import InvocationLimits
from tfs_proxy.tools.endpoint.invoke import ask as ask_group
from tfs_proxy.tools.endpoint.run import catalogue_of
from tfs_proxy.tools.endpoint.starter import ContainerStarter
from tfs_proxy.values.errors import NotReached, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.layout import ANYWHERE


def ask(container: RemoteContainer, folder: Path, limit_seconds: float) -> bytes:
    """InvokeEndpoint with another limit; the answer's body."""
    config = folder / "config.json"
    config.write_text(json.dumps(described({"m": of_image(container.address)}, [variant("v", "m")])))
    catalogue = catalogue_of([config], ANYWHERE)

    async def answer(starter: ContainerStarter) -> bytes:
        endpoint = HostedEndpoint("shop", catalogue.configs["first"], catalogue, starter)
        await endpoint.start()
        limits = InvocationLimits(limit_seconds)
        try:
            return (await ask_group(endpoint, endpoint.group_for({}), {}, b"abc", limits)).body
        finally:
            await endpoint.stop()

    with run_workspace(str(folder)) as workspace, ThreadPoolExecutor() as threads:
        starter = ContainerStarter(Settings.from_env({}), workspace, threads, {}, {}, ANYWHERE)
        return asyncio.run(answer(starter))


def test_an_answer_over_the_limit_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that never ends is no connection that broke."""
    monkeypatch.setenv("TFS_PROXY_MAX_ANSWER_MB", "1")
    with remote_container(answer=b"x" * 1_100_000) as container, pytest.raises(AwsError) as raised:
        ask(container, tmp_path, 30)
    assert "answer is over 1 MB. TFS_PROXY_MAX_ANSWER_MB sets the limit" in raised.value.message


def test_container_that_does_not_answer_in_time_is_a_model_error(tmp_path: Path) -> None:
    assert InvocationLimits().seconds == 60
    with remote_container() as container:
        assert ask(container, tmp_path, 30) == b"cba"
        container.open.clear()
        with pytest.raises(AwsError, match="did not answer in time") as raised:
            ask(container, tmp_path, 0.2)

    assert (raised.value.code, raised.value.members["OriginalStatusCode"]) == ("ModelError", 0)


def streamed(port: int, seconds: float, most_bytes: float = math.inf) -> bytes:
    """A container's answer in parts, to its end or until so much of it is there."""

    async def read(threads: ThreadPoolExecutor) -> bytes:
        container = HostedContainer("the server", "127.0.0.1", port, threads)
        answer = await container.stream("/stream", b"hello", {"Content-Type": "text/plain"}, seconds)
        found = bytearray()
        async with aclosing(answer.parts):
            async for part in answer.parts:
                found += part
                if len(found) >= most_bytes:
                    break
        return bytes(found)

    with ThreadPoolExecutor(1) as threads:
        return asyncio.run(read(threads))


def test_time_is_for_the_whole_of_an_answer_in_parts() -> None:
    with remote_container(chunks=(b"some", silent := threading.Event())) as container:
        with pytest.raises(UpstreamTimeout, match=r"within 0\.5 seconds"):
            streamed(container.port, 0.5)
        silent.set()
    with pytest.raises(NotReached, match="the server can't be reached"):
        streamed(container.port, 5.0)


@pytest.mark.parametrize("way", ["one chunk", "a length", "no length"])
def test_an_answer_in_parts_is_as_long_as_it_likes(way: str) -> None:
    """However it is framed, no more of it is held than a part."""
    with endless_server(way) as port:
        assert len(streamed(port, 20, 4 << 20)) >= 4 << 20


def test_an_answer_that_is_shorter_than_it_says_has_broken_off() -> None:
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")

    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(UpstreamUnavailable, match="the server closed the connection"):
            streamed(listener.getsockname()[1], 20)
