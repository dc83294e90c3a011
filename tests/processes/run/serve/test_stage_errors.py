"""Failed requests by the stage that they failed in, as `/metrics` counts them in every way to serve."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from support.archives import pack
from support.running import Running
from support.scraping import scrape
from support.stack import serving

pytestmark = pytest.mark.tensorflow
ERRORS = "tfs_proxy_stage_errors_total"
SCRIPT = """
import tfs_proxy


def input_handler(data, context):
    text = data.read().decode()
    if text == "input":
        raise ValueError(text)
    return text


def output_handler(response, context):
    if b"2.5" in response.content:
        raise ValueError("output")
    if b"3.5" in response.content:
        return tfs_proxy.Response("busy", status=503)
    return response.content, "application/json"
"""


def errors(running: Running) -> Mapping[tuple[str, str], float]:
    """Failed requests by stage and model."""
    return {(labels["stage"], labels["model"]): value for labels, value in scrape(running).values(ERRORS)}


def test_failed_requests_count_in_the_stage_of_their_first_error(saved_models: Path, tmp_path: Path) -> None:
    """What goes well does not count; who fails before the model is known counts for other."""
    archive = pack(
        tmp_path / "a.tar.gz", {"code/inference.py": SCRIPT}, {"half": saved_models / "half_plus_two"}
    )
    with serving(str(archive), "--model-server", "embedded") as stack:
        assert stack.invoke('{"instances": [8.0]}').status == 200
        assert stack.invoke("input").status == 500
        assert stack.invoke(b"no gzip", **{"Content-Encoding": "gzip"}).status == 400
        assert stack.invoke('{"instances": ["a"]}').status == 400
        assert stack.invoke('{"instances": [1.0]}').status == 500
        assert stack.invoke('{"instances": [3.0]}').status == 503
        assert stack.ask("POST", "/v2/models/half/infer", "{").status == 400
        assert stack.ask("GET", "/v2/models/absent").status == 404
        stack.wait_until(lambda: sum(errors(stack).values()) >= 7, "all failed requests are counted")
        assert errors(stack) == {
            ("read", "other"): 1,
            ("input_handler", "half"): 1,
            ("convert", "half"): 1,
            ("model_server", "half"): 1,
            ("output_handler", "half"): 2,
            ("other", "other"): 1,
        }
