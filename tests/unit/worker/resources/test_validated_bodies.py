"""`tfs_proxy.describe(..., validate=True)`: bodies that do not fit the declared type are refused."""

from collections.abc import Callable
from typing import Any

import pytest

from tfs_proxy.model.openapi.description import Description
from tfs_proxy.values.errors import BadInput

TYPES = """
import dataclasses, datetime, pydantic, tfs_proxy

@dataclasses.dataclass
class Row:
    length: float
    name: str | None = None

class Visit(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    when: datetime.datetime
    pair: tuple[int, int]

    @pydantic.field_validator("pair")
    @classmethod
    def rises(cls, pair: tuple[int, int]) -> tuple[int, int]:
        if pair[0] > pair[1]:
            raise ValueError(f"{pair} falls")
        return pair

class Order(pydantic.BaseModel):
    count: int = pydantic.Field(gt=0)
    rows: list[Row]
"""
HANDLER = "\ndef handler(data, context): return data.read(), 'text/plain'\n"
REFUSED = [
    ("Row", b'{"length": "long"}', "Expected `float`, got `str` - at `$.length`"),
    ("list[Row]", b'[{"length": 1}, {"name": "a"}]', "missing required field `length` - at `$[1]`"),
    (
        "Order",
        b'{"count": 0, "rows": [{}]}',
        "count: Input should be greater than 0; rows.0.length: Field req",
    ),
    ("list[float]", b"[1, ", "Input data was truncated"),
    ("str", b'"\xff"', "can't decode byte 0xff"),
]


@pytest.mark.parametrize(("declared", "body", "reason"), REFUSED)
def test_a_body_that_does_not_fit_names_its_field(
    make_front: Callable[..., Any], declared: str, body: bytes, reason: str
) -> None:
    """The status is 400, before the script is called; without validate the script decides."""
    described = f"tfs_proxy.describe(accepts={{'application/json': {declared}}}"
    front = make_front(f"{TYPES}{described}, validate=True){HANDLER}")

    result = front.post(body, Content_Type="application/json; charset=utf-8")

    assert result.status_code == 400
    assert "does not fit the type that the script declares: " in result.json["error"]
    assert reason in result.json["error"]
    assert make_front(f"{TYPES}{described}){HANDLER}").post(body).status_code == 200


def test_bodies_that_fit_and_other_types_reach_the_script(make_front: Callable[..., Any]) -> None:
    """The script gets the body as it came; bytes and text are not checked, undeclared types are 415."""
    accepts = "{'application/json': list[Order], 'application/vnd.visit+json': Visit, 'image/png': bytes, 'text/plain': str}"
    front = make_front(f"{TYPES}tfs_proxy.describe(accepts={accepts}, validate=True){HANDLER}")

    for body, kind in [
        (b'[ {"count": 1, "rows": [{"length": 2}]} ]', "application/json"),
        (b'{"when": "2024-01-01T00:00:00", "pair": [1, 2]}', "application/vnd.visit+json"),
        (b"\x89PNG", "image/png"),
        (b"1", "text/plain"),
    ]:
        result = front.post(body, Content_Type=kind)
        assert (result.status_code, result.content) == (200, body)
    refused = front.post(b'[{"count": 0}]', Content_Type="application/x-orders")
    assert (refused.status_code, "send application/json, " in refused.json["error"]) == (415, True), (
        refused.json
    )


@pytest.mark.parametrize(
    ("accepts", "kind", "status"),
    [
        ("{'application/json': dict}", None, 200),
        ("{'text/plain': str}", None, 415),
        ("{'image/*': bytes}", "image/png", 200),
        ("None", "text/csv", 200),
    ],
)
def test_types_that_are_declared(
    make_front: Callable[..., Any], accepts: str, kind: str, status: int
) -> None:
    """No Content-Type means JSON; a script that declares none takes all."""
    front = make_front(f"{TYPES}tfs_proxy.describe(accepts={accepts}, validate=True){HANDLER}")
    assert front.post(b"{}", **({"Content_Type": kind} if kind else {})).status_code == status


def test_the_validated_object_reaches_the_script(make_front: Callable[..., Any]) -> None:
    """So that nothing is parsed twice; what is not validated has none."""
    described = "tfs_proxy.describe(accepts={'application/json': Row, 'text/plain': str}, validate=True)"
    script = "def handler(data, context): return f'{data.value!r} {data.read()}', 'text/plain'"
    front = make_front(f"{TYPES}{described}\n{script}\n")
    assert front.post(b'{"length": 2}').text == "Row(length=2.0, name=None) b'{\"length\": 2}'"
    assert front.post(b"x", Content_Type="text/plain").text == "None b'x'"


def test_what_a_validator_says_of_a_value_is_for_the_client_alone(make_front: Callable[..., Any]) -> None:
    """The log's reason has it as three dots: it may quote the body."""
    accepts = "{'application/json': Visit}"
    front = make_front(f"{TYPES}tfs_proxy.describe(accepts={accepts}, validate=True){HANDLER}")

    result = front.post(b'{"when": "2024-01-01T00:00:00", "pair": [70007, 2]}')

    assert "(70007, 2) falls" in result.json["error"]
    description = Description(checks={"application/json": int})
    with pytest.raises(BadInput) as caught:
        description.validated(b"secret", None)
    assert "secret" in str(caught.value)
    assert "secret" not in caught.value.reason
