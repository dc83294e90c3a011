"""Half a surrogate pair from a client, which UTF-8 has no bytes for: in metrics, logs, traces and errors of a script."""

import json
from pathlib import Path

from support.archives import pack
from support.collector import collector
from support.scraping import scrape
from support.stack import serving

SCRIPT = r"""
import json
import logging

from opentelemetry import trace
from prometheus_client import Counter

from tfs_proxy import HTTPError

USERS = Counter("users", "Users such as \ud800.", ["user"])


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    text = json.loads(data)
    USERS.labels(text).inc()
    logging.warning("it is %s", text, extra={text: [text]})
    with trace.get_tracer("mine").start_as_current_span(text, attributes={"user": text}) as span:
        span.add_event(text, {"user": text})
    raise HTTPError(400, text) if text.startswith("http") else ValueError(text)
"""


def test_half_a_surrogate_pair_becomes_an_escape(tmp_path: Path) -> None:
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": SCRIPT})
    json_logs = {"TFS_PROXY_LOG_FORMAT": "json"}
    with collector() as received, serving(str(archive), env={**received.env, **json_logs}) as stack:
        refused, failed = (stack.invoke(rf'"{kind}\ud800"'.encode()) for kind in ("http", "own"))
        assert (refused.status, refused.json) == (400, {"error": r"http\ud800"})
        assert (failed.status, failed.json) == (500, {"error": r"ValueError: own\ud800"})
        assert scrape(stack).total("users_total", user=r"own\ud800") == 1
        names = {r"http\ud800", r"own\ud800"}
        stack.wait_until(lambda: names <= {span.name for span in received.spans}, "the script's spans came")
        stack.wait_for_log('"reason": "ValueError: own')
        entries = [json.loads(line) for line in stack.log.splitlines()]
    assert json.dumps(entries, ensure_ascii=False).encode()
    assert r"it is own\ud800" in {entry["message"] for entry in entries}
    assert r"ValueError: own\ud800" in {entry.get("reason") for entry in entries}
