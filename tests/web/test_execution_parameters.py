"""GET /execution-parameters, as Batch Transform asks for it."""

from typing import Any

import pytest


def test_the_three_values(front: Any) -> None:
    """They are those of the deployment; names and forms are the platform's."""
    result = front.client.simulate_get("/execution-parameters")

    assert result.status_code == 200
    assert result.headers["content-type"] == "application/json"
    assert result.json == {
        "MaxConcurrentTransforms": 1,
        "BatchStrategy": "MULTI_RECORD",
        "MaxPayloadInMB": 6,
    }


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_only_read(front: Any, method: str) -> None:
    """Any other method is 405."""
    assert front.client.simulate_request(method, "/execution-parameters").status_code == 405
