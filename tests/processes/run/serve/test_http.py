"""HTTP of the whole stack: real nginx, real gunicorn, the real embedded model server."""

import json

import numpy as np
import pytest

from support.archives import NEEDS_NGINX
from support.stack import Stack

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]


@pytest.mark.parametrize("accept", ["application/json", "application/jsonlines", "text/csv"])
def test_answers_read_back_to_the_same_floats(served: Stack, accept: str) -> None:
    """No digit of a float32 is lost, whatever the answer's type."""
    sent = [1111111.0, 0.3333333333, 1764093056.0, 1e-7, 3.4e38]
    headers = {"Content-Type": "application/json", "Accept": accept}
    answer = served.ask("POST", "/invocations", json.dumps({"instances": sent}), headers)

    numbers = (
        answer.json["predictions"]
        if accept == "application/json"
        else map(float, answer.body.split(b"\n")[:5])
    )
    want = np.array(sent, np.float32) * np.float32(0.5) + np.float32(2)
    assert np.array(list(numbers), np.float32).tolist() == want.tolist()


@pytest.mark.parametrize(
    "body",
    ['{"instances": [1.0]}', '{"instances": ["a"]}', "[1.0]", '{"inputs": [1.0]}', '{"inputs": {"x": "a"}}'],
)
def test_json_has_the_line_ends_of_the_model_server(served: Stack, body: str) -> None:
    """Whether it is asked for or not, and whoever passes it on."""
    one = served.invoke(body)
    assert b"\n" in one.body or one.status != 200
    for accept in ("application/json", "application/json;q=1", "*/*"):
        other = served.invoke(body, Accept=accept)
        assert (other.status, other.body) == (one.status, one.body)
