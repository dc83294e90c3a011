"""What SageMaker has for language models and this container has not: sticky sessions and bidirectional streams."""

import json
from pathlib import Path

import pytest

from contract.doors import pack, serving
from contract.stacks import EMBEDDED

HEADER, NEW = "x-amzn-sagemaker-session-id", "x-amzn-sagemaker-new-session-id"
SCRIPT = """
import json

import tfs_proxy


def handler(data, context):
    asked = json.loads(data.read() or "{}")
    headers = {"X-Amzn-SageMaker-New-Session-Id": asked["own"]} if "own" in asked else {}
    found = {"header": context.headers.get("X-Amzn-SageMaker-Session-Id")}
    return tfs_proxy.Response(json.dumps(found), headers=headers)
"""


@pytest.mark.tensorflow
def test_headers_of_sessions_reach_a_script_as_they_are(saved_models: Path, tmp_path: Path) -> None:
    """Answers have only those that it sets, and no request is refused; the variable of AWS's toolkit is named."""
    half = {"half_plus_two": saved_models / "half_plus_two"}
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": SCRIPT}, half)
    on = {"SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "true"}
    with serving("serve", str(archive), *EMBEDDED, env=on) as running:
        for named in ("NEW_SESSION", "anything", "a" * 300):
            answer = running.invoke("{}", **{HEADER: named})
            own = running.invoke('{"own": "mine; Expires=2030-01-01T00:00:00Z"}', **{HEADER: named})
            assert answer.json == {"header": named}
            assert NEW not in answer.headers
            assert own.headers[NEW] == "mine; Expires=2030-01-01T00:00:00Z"
        opening = running.invoke(json.dumps({"requestType": "NEW_SESSION"}), **{HEADER: "NEW_SESSION"})
        assert opening.json["header"] == "NEW_SESSION"
        websocket = {"Connection": "Upgrade", "Upgrade": "websocket"}
        refused = running.ask("GET", "/invocations-bidirectional-stream", headers=websocket)
        assert (refused.status, "no WebSocket is served here" in refused.json["error"]) == (426, True)
        offered = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
        assert running.ask("POST", "/invocations", "{}", offered).status == 200
        assert "SAGEMAKER_ENABLE_STATEFUL_SESSIONS" in running.log
