"""`tfs_proxy.describe` at the top of a script, and the schemas of Python types."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.model.openapi.description import Description, json_schema
from tfs_proxy.serving.script.load import load_script
from tfs_proxy.values.errors import ScriptLoadError

HANDLER = "\ndef handler(data, context): return b''\n"


def described(folder: Path, text: str) -> Description | None:
    path = folder / "inference.py"
    path.write_text(f"import tfs_proxy\n{text}{HANDLER}")
    return load_script(str(path)).description


def test_what_a_script_says(tmp_path: Path) -> None:
    """Schemas and types by media type; an example is bytes, JSON, or a file in the script's folder."""
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8")
    text = """tfs_proxy.describe(
        accepts={"image/jpeg": bytes, "Application/JSON; charset=utf-8": {"type": "array"}, "a/b+json": None},
        returns={"application/json": dict[str, float]},
        examples={"image/jpeg": "cat.jpg", "application/json": b"[1]", "a/b+json": {"age": 41}},
    )"""

    assert described(tmp_path, text) == Description(
        accepts={"image/jpeg": {}, "application/json": {"type": "array"}, "a/b+json": {}},
        returns={"application/json": {"type": "object", "additionalProperties": {"type": "number"}}},
        examples={"image/jpeg": b"\xff\xd8", "application/json": b"[1]", "a/b+json": b'{"age":41}'},
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tfs_proxy.describe(accepts={'text': None})", "'?text'? is not a media type"),
        ("tfs_proxy.describe(accepts={'text/csv': 7})", "7 is neither a JSON schema nor a type"),
        (
            "tfs_proxy.describe(accepts={'text/csv': complex})",
            "complex'> is neither a JSON schema nor a type of JSON",
        ),
        ("tfs_proxy.describe(examples={'image/png': 'cat.png'})", "No such file or directory"),
        (
            "tfs_proxy.describe(accepts={'text/csv': str}, examples={'image/png': b''})",
            "an example of image/png, which accepts does not name",
        ),
    ],
)
def test_a_mistake_ends_the_import(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ScriptLoadError, match=sentence):
        described(tmp_path, text)


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
        (None, {}),
        (Any, {}),
        (bytes, {}),
        ({"type": "array"}, {"type": "array"}),
        (list[list[float]], {"type": "array", "items": {"type": "array", "items": NUMBER}}),
        (Sequence[float], {"type": "array", "items": NUMBER}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (float | None, {"anyOf": [NUMBER, {"type": "null"}]}),
        (Own, {"title": "Own"}),
        (list[Own], {"type": "array", "items": {"title": "Own"}}),
        (dict[str, int] | Own, {"anyOf": [json_schema(dict[str, int]), {"title": "Own"}]}),
    ],
)
def test_the_schema_of_a_type(declared: Any, schema: dict[str, Any]) -> None:
    assert json_schema(declared) == schema
