"""What nginx.conf says where models come and go."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.deployments import INSTANCE
from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.many_models import (
    MAX_SEGMENTS,
    NUMBERS,
    STACKS,
    WEB_SOCKET,
    MultiModelRoutes,
    target_patterns,
)
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import ARCHIVE_ENDING, LOADED_MODEL, LOADED_MODEL_CHARACTERS

WORKSPACE = Workspace(Path("/run/tfs"))


def text_of(routes: MultiModelRoutes, **environ: str) -> str:
    proxy = config.ProxyConfig("0.0.0.0:8080", (), WORKSPACE.control_socket, multi_model=routes)
    return config.config(proxy, Settings.from_env(environ), WORKSPACE)


@pytest.mark.parametrize("number", [0, 9, 10, 99, 100, NUMBERS[-1], NUMBERS[-1] + 1, 1000])
def test_a_gate_leads_to_an_upstream_that_there_is(number: int) -> None:
    text = text_of(MultiModelRoutes(600, (INSTANCE,)))
    (pattern,) = re.findall(r'"~(.*)" stack\$stack_number;', text)
    python_pattern = pattern.replace("?<", "?P<").replace(r"\z", r"\Z")

    match = re.search(python_pattern, f"/run/tfs/{STACKS}/{number}/{WEB_SOCKET}")

    assert (match is not None) is (number in NUMBERS)
    assert (f"upstream stack{number} {{ server unix:{STACKS}/{number}/" in text) is (number in NUMBERS)


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
