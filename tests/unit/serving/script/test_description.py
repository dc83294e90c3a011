"""`tfs_proxy.describe` at the top of a script, and the schemas of Python types."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest

import tfs_proxy
from tfs_proxy.model.openapi.description import Description, json_schema
from tfs_proxy.serving.script.load import load_script
from tfs_proxy.serving.script.script_model import load_script_model
from tfs_proxy.values.errors import BadInput, ScriptLoadError

HANDLER = "\ndef handler(data, context): return b''\n"


def described(folder: Path, text: str) -> Description | None:
    """What a script with this text at its top has described."""
    path = folder / "inference.py"
    path.write_text(f"import tfs_proxy\n{text}{HANDLER}")
    return load_script(str(path)).description


def test_what_a_script_says(tmp_path: Path) -> None:
    """Schemas and types by media type; an example is bytes, or a file beside the script."""
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8")
    text = """tfs_proxy.describe(
        accepts={"image/jpeg": bytes, "Application/JSON; charset=utf-8": {"type": "array"}},
        returns={"application/json": dict[str, float]},
        examples={"image/jpeg": "cat.jpg", "application/json": b"[1]"},
    )"""

    assert described(tmp_path, text) == Description(
        accepts={"image/jpeg": {}, "application/json": {"type": "array"}},
        returns={"application/json": {"type": "object", "additionalProperties": {"type": "number"}}},
        examples={"image/jpeg": b"\xff\xd8", "application/json": b"[1]"},
    )


def test_a_script_that_says_nothing(tmp_path: Path) -> None:
    """It has no description, also if the one before it had."""
    assert described(tmp_path, "tfs_proxy.describe(accepts={'text/csv': None})") is not None
    assert described(tmp_path, "") is None


def test_a_script_model(tmp_path: Path) -> None:
    """A script that is the model describes itself in the same way."""
    path = tmp_path / "inference.py"
    path.write_text("import tfs_proxy\ntfs_proxy.describe(returns={'text/csv': str})\ndef model_fn(d): ...")

    assert load_script_model(str(path)).description == Description(returns={"text/csv": {"type": "string"}})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tfs_proxy.describe(accepts={'text': None})", "'?text'? is not a media type"),
        ("tfs_proxy.describe(accepts={'text/csv': 7})", "7 is neither a JSON schema nor a type"),
        ("tfs_proxy.describe(accepts={'text/csv': complex})", "no JSON schema is known for"),
        ("tfs_proxy.describe(examples={'image/png': 'cat.png'})", "No such file or directory"),
        (
            "tfs_proxy.describe(accepts={'application/json': {'type': 'array'}}, validate=True)",
            "can't check application/json by a JSON schema: give a Python type",
        ),
        (
            "tfs_proxy.describe(accepts={'text/csv': list[float]}, validate=True)",
            "text/csv, which is not JSON",
        ),
        (
            "tfs_proxy.describe(accepts={'application/json': dict[str, int] | tfs_proxy.Request}, validate=True)",
            "can't check .* Type unions may not contain more than one dict-like type",
        ),
        (
            "tfs_proxy.describe(accepts={'text/csv': str}, examples={'image/png': b''})",
            "an example of image/png, which accepts does not name",
        ),
    ],
)
def test_a_mistake_ends_the_import(tmp_path: Path, text: str, sentence: str) -> None:
    """It is told at the start, with the script's own line, not when the document is asked for."""
    with pytest.raises(ScriptLoadError, match=sentence):
        described(tmp_path, text)


def test_json_that_is_nested_too_deeply(tmp_path: Path) -> None:
    """It is the client's mistake, as all that does not fit; a request without a type is JSON."""
    says = described(tmp_path, "tfs_proxy.describe(accepts={'application/json': list}, validate=True)")

    assert says is not None
    with pytest.raises(BadInput, match="recursion"):
        says.refuse_unfit(b"[" * 100_000, None)


def test_elsewhere_nothing_happens() -> None:
    """A script can be imported by its own tests, without a server."""
    tfs_proxy.describe(accepts={"text/csv": str})

    with pytest.raises(TypeError, match="neither"):
        tfs_proxy.describe(accepts={"text/csv": 7})


class Row(TypedDict):
    """A row with a name at most."""

    length: float
    name: NotRequired[str]


class Colour(enum.Enum):
    """One of two."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Answer:
    """What a script gives."""

    label: int
    scores: list[float]
    colour: Colour | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Tree:
    """A type that contains itself."""

    children: "list[Tree]"


class Own:
    """A class with a schema of its own, as pydantic's."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"title": "Own"}


NUMBER: dict[str, Any] = {"type": "number"}


@pytest.mark.parametrize(
    ("declared", "schema"),
    [
        (int, {"type": "integer"}),
        (None, {"type": "null"}),
        (Any, {}),
        (bytes, {}),
        (list, {"type": "array"}),
        (list[list[float]], {"type": "array", "items": {"type": "array", "items": NUMBER}}),
        (Sequence[float], {"type": "array", "items": NUMBER}),
        (tuple[float, ...], {"type": "array", "items": NUMBER}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (float | None, {"anyOf": [NUMBER, {"type": "null"}]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Colour, {"enum": ["red", "blue"]}),
        (
            Row,
            {
                "type": "object",
                "properties": {"length": NUMBER, "name": {"type": "string"}},
                "required": ["length"],
            },
        ),
        (
            Answer,
            {
                "type": "object",
                "properties": {
                    "label": {"type": "integer"},
                    "scores": {"type": "array", "items": NUMBER},
                    "colour": {"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}]},
                    "more": {"type": "object", "additionalProperties": {}},
                },
                "required": ["label", "scores"],
            },
        ),
        (Own, {"title": "Own"}),
    ],
)
def test_the_schema_of_a_type(declared: Any, schema: dict[str, Any]) -> None:
    """As its values are written in JSON."""
    assert json_schema(declared) == schema


@pytest.mark.parametrize("declared", [complex, Tree, "list", list[complex], {1: 2}])
def test_a_type_without_a_schema(declared: Any) -> None:
    """It is refused, and never described wrongly."""
    with pytest.raises(TypeError, match="describe: "):
        json_schema(declared)
