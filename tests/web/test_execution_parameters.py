"""GET /execution-parameters, as Batch Transform asks for it."""

from typing import Any

import pytest


def test_what_the_deployment_takes(front: Any) -> None:
    """Names are the platform's. BatchStrategy is left out, which means MultiRecord.

    The platform's word for it, MULTI_RECORD, is an "Invalid Batch Strategy" in local mode of SageMaker's SDK.
    """
    result = front.client.simulate_get("/execution-parameters")

    assert result.status_code == 200
    assert result.headers["content-type"] == "application/json"
    assert result.json == {"MaxConcurrentTransforms": 1, "MaxPayloadInMB": 6}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_only_read(front: Any, method: str) -> None:
    """Any other method is 405."""
    assert front.client.simulate_request(method, "/execution-parameters").status_code == 405
