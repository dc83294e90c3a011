"""Annotations of a script's functions: bodies become objects that are checked, and objects become JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy import testing
from tfs_proxy.settings.settings import Settings
from tfs_proxy.testing import TensorSpec
from tfs_proxy.values.errors import ScriptLoadError

TYPES = """
from __future__ import annotations

import dataclasses, datetime, enum, typing
import msgspec, numpy as np, pydantic, tfs_proxy

if typing.TYPE_CHECKING:
    from tfs_proxy import Context
    from nowhere import Nothing

@dataclasses.dataclass
class House:
    rooms: int
    area: float = 1.0
    kind: typing.Literal["flat", "house"] = "flat"

    def __post_init__(self):
        if self.rooms < 0:
            raise ValueError(f"{self.rooms} is negative")

class Flat(typing.TypedDict):
    rooms: int

class Plot(msgspec.Struct, rename="camel"):
    square_metres: float
    tags: dict[str, int] = {}

class Offer(pydantic.BaseModel):
    price: float = pydantic.Field(gt=0, description="In euros.")
    houses: list[House] = []
    when: datetime.date | None = None

    @pydantic.field_validator("when")
    @classmethod
    def is_late(cls, when):
        if when and when.year < 2000:
            raise ValueError(f"{when} is early")
        return when

@dataclasses.dataclass
class Street:
    offers: list[Offer]
"""
HOUSE = testing.signature(
    {"x": TensorSpec("x", "DT_FLOAT", (None, 2))}, {"price": TensorSpec("price", "DT_FLOAT", (None, 1))}
)
Ask = Callable[..., testing.Reply]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """``ask(script, body, content_type)`` of a script below the types above; the model answers 0.1."""

    def asked(script: str, *request: Any, **more: Any) -> testing.Reply:
        path = tmp_path / "inference.py"
        path.write_text(f"{TYPES}\n{script}\n")
        with testing.load(path, signatures=HOUSE, outputs={"price": [[0.1]]}) as loaded:
            return loaded.post(*request, **more)

    return asked


def taking(kind: str) -> str:
    """A handler that shows what it gets."""
    return f"def handler(it: {kind}, context: Context): return repr(it), 'text/plain'"


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("House", '{"rooms": 2}', "House(rooms=2, area=1.0, kind='flat')"),
        ("Flat", '{"rooms": 2}', "{'rooms': 2}"),
        ("Plot", '{"squareMetres": 2}', "Plot(square_metres=2.0, tags={})"),
        ("Offer", '{"price": "2"}', "Offer(price=2.0, houses=[], when=None)"),
        ("Street", '{"offers": [{"price": 2}]}', "Street(offers=[Offer(price=2.0, houses=[], when=None)])"),
        ("list[Flat]", ' [{"rooms": 1}, {"rooms": 2}]', "[{'rooms': 1}, {'rooms': 2}]"),
        ("'list[Plot]'", "[]", "[]"),
    ],
)
@pytest.mark.parametrize("head", ["def", "async def"])
def test_a_body_becomes_the_object_of_its_type(ask: Ask, kind: str, body: str, shown: str, head: str) -> None:
    """Each annotation is resolved alone: that of the context is nowhere at run time."""
    reply = ask(taking(kind).replace("def", head), body)

    assert (reply.status, reply.text) == (200, shown)


def test_a_decorated_handler_is_that_inside(ask: Ask) -> None:
    decorated = (
        "import functools\ndef passing(f): return functools.wraps(f)(lambda *given: f(*given))\n@passing\n"
    )

    assert ask(decorated + taking("Flat"), {"rooms": 1}).text == "{'rooms': 1}"


@pytest.mark.parametrize(
    ("content_type", "kind", "body"),
    [
        (None, "Flat", '{"rooms": 1}'),
        ("application/vnd.flat+json", "Flat", '{"rooms": 1}'),
        ("application/json; charset=utf-16", "Flat", '{"rooms": 1}'.encode("utf-16")),
        ("application/x-ndjson", "list[Flat]", '{"rooms": 1}\r\n\n{"rooms": 2}'),
        ("application/jsonlines", "list[Offer]", '{"price": 1}\n{"price": 2}\n'),
    ],
)
def test_content_types_of_objects(ask: Ask, content_type: str | None, kind: str, body: str | bytes) -> None:
    """JSON by any of its names, and JSON lines for a list."""
    assert ask(taking(kind), body, content_type).status == 200


@pytest.mark.parametrize(
    ("content_type", "sentence"),
    [
        ("application/x-www-form-urlencoded", "curl -d sends it by default: add -H 'Content-Type: appl"),
        ("text/csv", "Content-Type text/csv can't be read as House: send application/json."),
        ("application/jsonlines", "can't be read as House"),
        ("multipart/form-data; boundary=x", "can't be read as House"),
    ],
)
def test_another_content_type_is_a_415(ask: Ask, content_type: str, sentence: str) -> None:
    reply = ask(taking("House"), "rooms=2", content_type)

    assert (reply.status, sentence in reply.json["error"]) == (415, True), reply.json


@pytest.mark.parametrize(
    ("kind", "body", "details"),
    [
        ("House", '{"rooms": "two"}', [(["rooms"], "Expected `int`, got `str`")]),
        ("House", "{}", [(["rooms"], "Object missing required field `rooms`")]),
        ("House", '{"rooms": -1}', [([], "-1 is negative")]),
        ("Plot", '{"squareMetres": 1, "tags": {"a": "b"}}', [(["tags"], "Expected `int`, got `str`")]),
        (
            "Street",
            '{"offers": [{"price": 0}]}',
            [(["offers", 0, "price"], "Input should be greater than 0")],
        ),
        ("list[House]", '{"rooms": 2}', [([], "Expected `array`, got `object`")]),
        (
            "list[House]",
            '[{"rooms": 1}, {"rooms": null}, {}]',
            [
                ([1, "rooms"], "Expected `int`, got `null`"),
                ([2, "rooms"], "Object missing required field `rooms`"),
            ],
        ),
        (
            "Offer",
            '{"price": 0, "houses": [{"rooms": "x"}], "when": "1999-01-01"}',
            [
                (["price"], "Input should be greater than 0"),
                (
                    ["houses", 0, "rooms"],
                    "Input should be a valid integer, unable to parse string as an integer",
                ),
                (["when"], "Value error, 1999-01-01 is early"),
            ],
        ),
        ("House", '{"rooms": 1', [([], "Input data was truncated")]),
        ("House", b'"\xff"', [([], "Expected `object`, got `str`")]),
    ],
)
def test_a_body_that_does_not_fit_names_the_places(
    ask: Ask, kind: str, body: str | bytes, details: list[tuple[list[Any], str]]
) -> None:
    """With pydantic all, with msgspec the first of each record; the sentence has the same."""
    reply = ask(taking(kind), body)

    assert reply.status == 400
    assert reply.json["details"] == [{"loc": loc, "msg": message} for loc, message in details]
    assert reply.json["error"].startswith(f"The body does not fit {kind}: ")
    assert all(message in reply.json["error"] for _, message in details)


def test_an_empty_body_is_told(ask: Ask) -> None:
    """And what to send; JSON lines may have none."""
    assert ask(taking("House"), "").json == {"error": "The body is empty: send House as JSON."}
    assert ask(taking("list[House]"), "", "application/jsonlines").text == "[]"


def test_a_number_beyond_64_bits_is_a_number(ask: Ask) -> None:
    """Of a float input; one that no float has is the body's fault."""
    script = "def handler(it: House, context): return context.predict([[it.rooms, 1]])['price'][0, 0]"

    assert ask(script, f'{{"rooms": {10**20}}}').status == 200
    assert ask(script, f'{{"rooms": {10**400}}}').status == 400


def test_lines_are_read_one_by_one(ask: Ask) -> None:
    """One that is cut off is not joined with the next; the places count from 0."""
    reply = ask(taking("list[House]"), '{"rooms": 1}\n{"rooms": 1\n"area": 2}', "application/jsonlines")

    assert [each["loc"] for each in reply.json["details"]] == [[1], [2]]


def test_a_refusal_is_bounded(ask: Ask, tmp_path: Path) -> None:
    """However many records a body has, and however deep it is."""
    reply = ask(taking("list[Offer]"), json.dumps([{}] * 10_000))

    assert len(reply.json["details"]) == 50
    assert ask(taking("list[Deep]") + DEEP, "[" * 100_000).status == 400
    many = json.dumps({"price": 1, "houses": [0] * 2000})
    assert ask(taking("Offer"), many).json["details"] == [{"loc": [], "msg": "2000 values don't fit"}]
    settings = Settings.from_env({"TFS_PROXY_MAX_DECODED_TOTAL_MB": "1"})
    with testing.load(tmp_path / "inference.py", signatures=HOUSE, settings=settings) as script:
        assert script.post({"price": 1, "houses": [0] * 3000}).status == 413
        assert script.post({"price": 1, "houses": [0] * 2000}).status == 400


DEEP = """

@dataclasses.dataclass
class Deep:
    inner: list
"""


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        ("House(2, np.float32(0.1))", '{"rooms":2,"area":0.1,"kind":"flat"}'),
        ("Plot(np.float64(2), {'a': 1})", '{"squareMetres":2.0,"tags":{"a":1}}'),
        (
            "Offer(price=2, houses=[House(1)])",
            '{"price":2.0,"houses":[{"rooms":1,"area":1.0,"kind":"flat"}],"when":null}',
        ),
        (
            "{'y': np.arange(6).reshape(2, 3).T, 'n': float('nan'), 1: np.bool_(True)}",
            '{"y":[[0,3],[1,4],[2,5]],"n":null,"1":true}',
        ),
        (
            "{'words': np.array([b'a', b'\\xff'], object), 'set': {1}}",
            '{"words":["a",{"b64":"/w=="}],"set":[1]}',
        ),
        ("[{'a': 1}, House(1)]", '[{"a":1},{"rooms":1,"area":1.0,"kind":"flat"}]'),
        ("[]", "[]"),
        ("np.float32(0.1)", "0.1"),
        ("7", "7"),
        ("False", "false"),
        ("None", "null"),
        ("tfs_proxy.Response({'a': [np.inf]}, status=201)", '{"a":[null]}'),
    ],
)
def test_an_object_is_answered_as_json(ask: Ask, returned: str, answer: str) -> None:
    """Whatever is annotated, and whatever Accept says."""
    halves = f"def output_handler(response, context): return {returned}"
    for script in (f"def handler(data, context): return {returned}", halves):
        reply = ask(script, '{"instances": [[1, 2]]}', accept="text/csv")

        assert (reply.text, reply.content_type) == (answer, "application/json")
        assert reply.status == (201 if "201" in returned else 200)


@pytest.mark.parametrize(
    ("returned", "content_type", "body"),
    [
        ("'[1]', 'text/x-own'", "text/x-own", "[1]"),
        ("'word'", "text/csv", "word"),
        ("b'word'", "text/csv", "word"),
        ("tfs_proxy.Response('word', 'text/x-own')", "text/x-own", "word"),
        ("tfs_proxy.Response({'a': 1}, 'application/vnd.a+json')", "application/vnd.a+json", '{"a":1}'),
        ("iter(['a', 'b'])", "text/csv", "ab"),
    ],
)
def test_other_answers_stay(ask: Ask, returned: str, content_type: str, body: str) -> None:
    """Whatever is annotated, too."""
    reply = ask(
        f"def handler(it: Flat, context) -> Flat: return {returned}", '{"rooms": 1}', accept="text/csv"
    )

    assert (reply.content_type, reply.text) == (content_type, body)


@pytest.mark.parametrize(
    "returned", ["{'a': object()}", "({'a': 1}, 'application/json')", "['a', 1]", "tfs_proxy.Request({})"]
)
def test_what_is_no_answer(ask: Ask, returned: str, caplog: pytest.LogCaptureFixture) -> None:
    """A value that JSON can't carry, and a pair whose body is no text."""
    assert ask(f"def handler(data, context): return {returned}", "1").status == 500
    assert "handler returned" in caplog.text


def test_typed_input_handler(ask: Ask) -> None:
    """It makes the model's request of the object, and the model's answer goes out as ever."""
    script = "def input_handler(house: House, context): return np.array([[house.rooms, house.area]])"

    assert ask(script, '{"rooms": 2}').json == {"predictions": [[0.1]]}
    assert ask(script, '{"rooms": 2.5}').status == 400


def test_tensors_of_the_protocol_are_no_objects(make_front: Callable[..., Any]) -> None:
    """A typed handler is refused there by a sentence; a dict that another one returns stays tensors."""
    path = "/v2/models/half/infer"
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}
    typed = make_front(f"{TYPES}\n{taking('House')}", open_inference="script")
    refused = typed.client.simulate_post(path, json=body)
    plain = make_front("def handler(data, context): return {'y': [2.5]}", open_inference="script")
    answered = plain.client.simulate_post(path, json=body)
    odd = make_front("def handler(data, context): return 2.5", open_inference="script")

    assert (refused.status_code, list(refused.json)) == (400, ["error"])
    assert "The script takes House as JSON, and no tensors" in refused.json["error"]
    assert answered.json["outputs"] == [{"name": "y", "datatype": "FP64", "shape": [1], "data": [2.5]}]
    assert odd.client.simulate_post(path, json=body).status_code == 500


def test_typed_input_fn(tmp_path: Path, make_model: Callable[[str], Path]) -> None:
    """Of a script that is the model; the default output_fn writes the answer."""
    folder = make_model(
        f"{TYPES}\ndef model_fn(folder): return 2\n"
        "def input_fn(plot: Plot, content_type): return plot.square_metres\n"
        "def predict_fn(size, model): return [size * model]\n"
    )
    with testing.load(folder) as script:
        assert script.post('{"squareMetres": 3}').json == [6.0]
        assert script.post('{"squareMetres": "3"}').json["details"][0]["loc"] == ["squareMetres"]
        assert script.post("3", "text/csv").status == 415
        schema = script.openapi().json["components"]["schemas"]["Plot"]
    assert list(schema["properties"]) == ["squareMetres", "tags"]


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[[str], Path]:
    """Write a script that is the model; returns its folder."""

    def make(text: str) -> Path:
        path = tmp_path / "folder" / "code" / "inference.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return path.parents[1]

    return make


@pytest.mark.parametrize(
    "kind",
    ["typing.Any", "object", "typing.BinaryIO", "typing.IO[bytes]", "io.BytesIO", "'typing.IO | None'"],
)
def test_annotations_as_scripts_for_aws_have_them_say_nothing(
    ask: Ask, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The function gets the file, as without one."""
    reply = ask(
        f"import io\ndef handler(data: {kind}, context: Context) -> tuple[bytes, str]: return data.read(), 'a/b'",
        "x",
    )

    assert (reply.text, caplog.messages) == ("x", [])


@pytest.mark.parametrize(
    "kind", ["dict", "np.ndarray", "Nothing", "list[Nothing]", "bytes", "House | Flat", "1 / 0"]
)
def test_an_annotation_that_is_not_used_is_told(
    ask: Ask, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With what the function gets instead; the request is answered as without it."""
    reply = ask(f"def handler(data: {kind}, context): return data.read(), 'a/b'", "x")

    (line,) = caplog.messages
    assert reply.text == "x"
    assert "inference.py: handler gets the body as a file: " in line
    assert "annotate a dataclass" in line


def test_str_is_what_input_fn_gets(
    make_model: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """So nothing is said of it, nor of str | bytes; of a dict it is."""
    text = "def model_fn(d): return 1\ndef predict_fn(d, m): return [1]\ndef input_fn(data: {}, kind): return data\n"
    folder = make_model(text.format("'str | bytes'"))
    with testing.load(folder) as script:
        assert (script.post("[1]").status, caplog.messages) == (200, [])
    (folder / "code" / "inference.py").write_text(text.format("dict"))
    with testing.load(folder):
        assert "input_fn gets the body as str or bytes: <class 'dict'> is not used" in caplog.messages[0]


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (taking("House") + "\nhandler.streams = True", "handler takes House, and can't read bodies in parts"),
        (
            taking("Odd") + "\n@dataclasses.dataclass\nclass Odd:\n    a: complex",
            "handler takes Odd, which can't be read",
        ),
        (
            taking("Odd") + "\n@dataclasses.dataclass\nclass Odd:\n    a: Nothing",
            "handler takes Odd, which can't be read",
        ),
        (
            "tfs_proxy.describe(accepts={'text/csv': str})\n" + taking("House"),
            "accepts names text/csv, but the script takes House",
        ),
    ],
)
def test_what_ends_the_start(ask: Ask, script: str, sentence: str) -> None:
    with pytest.raises(ScriptLoadError, match=sentence):
        ask(script, "{}")


def test_the_document_follows_from_the_annotations(tmp_path: Path) -> None:
    """Schemas of both directions with descriptions; examples are those that the script describes."""
    (tmp_path / "inference.py").write_text(
        f"{TYPES}\ntfs_proxy.describe(examples={{'application/json': [{{'price': 2}}]}})\n"
        "def handler(offers: list[Offer], context) -> list[House]: return []\n"
    )
    with testing.load(tmp_path / "inference.py", signatures=HOUSE) as script:
        document = script.openapi().json
    invocations = document["paths"]["/invocations"]["post"]
    accepted = invocations["requestBody"]["content"]
    assert list(accepted) == ["application/json", "application/jsonlines"]
    assert accepted["application/json"]["examples"]["sample"]["value"] == [{"price": 2}]
    returned = invocations["responses"]["200"]["content"]
    assert returned == {
        "application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/House"}}}
    }
    offer = accepted["application/json"]["schema"]["items"]
    assert offer["properties"]["price"]["description"] == "In euros."


def test_what_a_check_says_of_a_value_is_for_the_client_alone(
    ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's reason has it as three dots: it may quote the body."""
    reply = ask(taking("House"), '{"rooms": -70007}')

    assert "-70007 is negative" in reply.json["error"]
    assert "70007" not in caplog.text


def test_a_check_that_fails_is_an_error_of_the_script(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    """With its line in the log, as for any other line of it."""
    odd = "\nclass Odd(msgspec.Struct):\n    a: int\n    def __post_init__(self): 1 / self.a\n"

    assert ask(f"{odd}{taking('Odd')}", '{"a": 0}').status == 500
    assert "in __post_init__: ZeroDivisionError" in caplog.text
