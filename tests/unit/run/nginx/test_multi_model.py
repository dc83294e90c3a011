"""What nginx.conf says where models come and go."""

import re
import socket
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.config import GrpcEndpoint
from tfs_proxy.run.nginx.many_models import (
    MAX_SEGMENTS,
    NUMBERS,
    STACKS,
    WEB_SOCKET,
    MultiModelRoutes,
    target_patterns,
)
from tfs_proxy.run.nginx.proxy import NginxProxy
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import ARCHIVE_ENDING, LOADED_MODEL, LOADED_MODEL_CHARACTERS

WORKSPACE = Workspace(Path("/run/tfs"))


def text_of(routes: MultiModelRoutes, **environ: str) -> str:
    proxy = config.ProxyConfig("0.0.0.0:8080", (), WORKSPACE.control_socket, multi_model=routes)
    return config.config(proxy, Settings.from_env(environ), WORKSPACE)


def location(text: str, name: str) -> str:
    begin = text.index(f"location {name} {{")
    return text[begin : text.index("\n        }", begin)]


def test_each_request_has_its_own_time() -> None:
    """A load takes as long as it may, a wait for a model as long as a request, and so on."""
    environ = {"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "200", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "90"}
    text = text_of(MultiModelRoutes(load_seconds=1234.5), **environ)

    assert "proxy_read_timeout 1240s;" in location(text, "= /models")
    assert "proxy_read_timeout 205s;" in location(text, "@wait")
    assert "proxy_read_timeout" not in location(text, "= /invocations")
    assert text.count("proxy_read_timeout 210s;") == 1
    assert "not done within 1234.5 seconds" in text


def test_calls_of_grpc_go_to_the_router_and_may_wait_for_a_load() -> None:
    """Only those that are published; the router's word for nginx stays inside."""
    proxy = config.ProxyConfig(
        *("0.0.0.0:8080", (), WORKSPACE.control_socket),
        grpc=GrpcEndpoint(("0.0.0.0:8500",), (1, 22, 1)),
        multi_model=MultiModelRoutes(600),
    )
    environ = {"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "200", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "90"}

    text = config.config(proxy, Settings.from_env(environ), WORKSPACE)

    assert "server unix:/run/tfs/router.sock max_fails=0;" in text
    assert text.count("grpc_pass grpc://predictions;") == 6
    assert "grpc_read_timeout 415s;" in text
    assert "grpc_hide_header X-Tfs-Proxy-Model;" in text


@pytest.mark.parametrize("number", [0, 9, 10, 99, 100, NUMBERS[-1], NUMBERS[-1] + 1, 1000])
def test_a_gate_leads_to_an_upstream_that_there_is(number: int) -> None:
    text = text_of(MultiModelRoutes(600))
    (pattern,) = re.findall(r'"~(.*)" stack\$stack_number;', text)
    python_pattern = pattern.replace("?<", "?P<").replace(r"\z", r"\Z")

    match = re.search(python_pattern, f"/run/tfs/{STACKS}/{number}/{WEB_SOCKET}")

    assert (match is not None) is (number in NUMBERS)
    assert (f"upstream stack{number} {{ server unix:{STACKS}/{number}/" in text) is (number in NUMBERS)


def test_nginx_of_many_models_has_a_port_for_grpc_if_it_is_set(tmp_path: Path) -> None:
    program = tmp_path / "nginx-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    workspace = Workspace(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = NginxProxy(
            str(program), Settings.from_env({}), workspace, [listener], multi_model=MultiModelRoutes(600)
        )
        proxy.spec({})

    assert proxy.grpc_listeners == []
    assert "location = /models {" in (workspace.nginx / "nginx.conf").read_text()


def model_of(target: str) -> str | None:
    """The model's name by the patterns, which Python reads as PCRE does."""
    for pattern, name in target_patterns():
        match = re.search(pattern.replace("?<", "?P<").replace(r"\z", r"\Z"), target, re.ASCII)
        if match:
            return match.expand(re.sub(r"\$\{(\w+)\}", r"\\g<\1>", name.strip('"')))
    return None


@given(st.lists(st.from_regex(LOADED_MODEL, fullmatch=True), min_size=1, max_size=MAX_SEGMENTS + 2))
def test_a_path_of_names_is_a_model(segments: list[str]) -> None:
    name = "--".join(segments)
    taken = len(segments) <= MAX_SEGMENTS and len(name) <= LOADED_MODEL_CHARACTERS

    assert model_of("/".join(segments) + ARCHIVE_ENDING) == (name if taken else None)


@given(st.text("ab./-_\n%", max_size=20))
@example("..")
@example("a/../b")
@example("/a")
@example("a\n")
def test_no_path_leads_out_of_the_folder(path: str) -> None:
    name = model_of(path + ARCHIVE_ENDING)

    if name is not None:
        assert re.fullmatch(LOADED_MODEL, name)
        assert all(segment and segment[0] in "ab" for segment in path.removeprefix("/").split("/"))
