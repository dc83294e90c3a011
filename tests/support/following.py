"""A script whose answer tells which of its versions is served, and versions of the stand-in's model."""

from collections.abc import Callable
from pathlib import Path

from support.archives import SAVED_MODEL
from support.stack import Stack

SCRIPT = """
import json

def handler(data, context):
    if context.request_content_type == "text/plain":
        return {answer}, "text/plain"
    (value,) = json.loads(data.read())["instances"]
    return json.dumps({{"predictions": [value / 2 + 2]}}), "application/json"
"""
BROKEN = "\nimport no_such_module_here\n"
Serve = Callable[..., Stack]


def script(answer: str) -> str:
    """A script that answers this to a text, and the stand-in model's prediction to JSON."""
    return SCRIPT.format(answer=repr(answer))


def add_version(folder: Path, version: int) -> None:
    """A whole version of the stand-in's model, in one step."""
    new = folder.parent / f"new-{version}"
    new.mkdir()
    (new / "saved_model.pb").write_bytes(SAVED_MODEL)
    new.rename(folder / "m" / str(version))


def answer(stack: Stack) -> str:
    """What the script answers to a text."""
    reply = stack.ask("POST", "/invocations", "x", {"Content-Type": "text/plain", "Connection": "close"})
    assert reply.status == 200, reply.body
    return reply.body.decode()


def answers(stack: Stack, text: str) -> bool:
    """Whether this is what the script answers."""
    return answer(stack) == text
