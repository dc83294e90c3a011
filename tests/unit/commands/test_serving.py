"""`serve` and `tensorflow-serving`: what they refuse before anything starts, and how they end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.cli import command_parser
from tfs_proxy.commands.serve import stages_of
from unit.conftest import Command

NAMES = st.text("ABC_", min_size=1, max_size=5)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_port_that_is_none_is_named(port: str, run: Command) -> None:
    """Exit status 2, as for any flag that can't be parsed."""
    said = run("serve", f"--port={port}", ends=2).err
    assert f"{port} is not a port: take a number from 0 to 65535" in said


@pytest.mark.parametrize("command", ["serve", "serve a b", "tensorflow-serving", "container"])
def test_a_setting_that_cannot_be_used_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, run: Command
) -> None:
    """Exit status 2 and the variable with its value, before the port opens."""
    monkeypatch.setenv("SAGEMAKER_GUNICORN_WORKERS", "many")
    assert "SAGEMAKER_GUNICORN_WORKERS=many can't be used" in run(*command.split(), ends=2).err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("one.tar.gz --env 1:A=b", "--env 1:A=b is for a stage of a pipeline: serve A B"),
        ("a b --reload", "--env N:TFS_PROXY_RELOAD=true"),
        ("a.tar.gz " * 16, "a pipeline has 2 to 15 stages, not 16"),
        (
            "a b --env 3:A=b",
            "--env 3:A=b can't be used: it must be N:NAME=VALUE, with N from 1 to 2",
        ),
        ("a b --env A=b", "--env A=b can't be used"),
        ("a b --env 1:=b", "--env 1:=b can't be used"),
        ("a b --env 1:A", "--env 1:A can't be used"),
        ("a b --env 01:A=b", "--env 01:A=b can't be used"),
        *(
            (f"a b --env 2:{name}=x", f"--env 2:{name} can't be used: it is about the address")
            for name in ("TFS_PROXY_API_KEYS", "TFS_PROXY_HOST", "SAGEMAKER_BIND_TO_PORT", "TFS_PROXY_NGINX")
        ),
    ],
)
def test_what_cannot_be_a_pipeline_is_refused(words: str, text: str, run: Command) -> None:
    """Exit status 2 and one sentence."""
    assert text in run("serve", *words.split(), ends=2).err


@given(st.lists(st.dictionaries(NAMES, st.text("ab=: ", max_size=5), max_size=4), min_size=2, max_size=15))
def test_each_stage_gets_its_own_variables(variables: list[dict[str, str]]) -> None:
    """Any text is a value, = and : included."""
    words = [f"part-{number}" for number in range(1, len(variables) + 1)]
    for number, values in enumerate(variables, start=1):
        for name, value in values.items():
            words += ["--env", f"{number}:{name}={value}"]
    orders = stages_of(command_parser("serve").parse_args(words))
    assert [order.variables for order in orders] == variables
    assert [order.archive for order in orders] == words[: len(variables)]
