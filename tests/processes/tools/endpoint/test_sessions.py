"""Sticky sessions through `tfs-proxy endpoint`: boto3's members, and instances that keep their sessions."""

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError

from support.endpoints import Endpoint, described, running_endpoint, variant
from support.multi_model import script_model
from support.waiting import wait_until

SCRIPT = """
import json
import os


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept, context):
    session = context.session
    if session is not None:
        session["texts"] = [*session.get("texts", []), data]
    kept = None if session is None else session["texts"]
    return json.dumps({"texts": kept, "parent": os.getppid()}), "application/json"
"""
SESSION = re.compile(r"([0-9a-f]{32}); Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Two variants, one of three instances, whose script keeps what it is sent."""
    folder = tmp_path_factory.mktemp("sessions")
    archive = script_model(folder / "model.tar.gz", SCRIPT)
    on = {"SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "true", "SAGEMAKER_GUNICORN_WORKERS": "1"}
    model = {"PrimaryContainer": {"ModelDataUrl": str(archive), "Environment": on}}
    variants = [variant("a", "m", InitialInstanceCount=3), variant("b", "m")]
    with running_endpoint(folder, described({"m": model}, variants)) as endpoint:
        yield endpoint


def said(endpoint: Endpoint, session: str, text: str, **members: str) -> Any:
    """A request of a session: what the script answers."""
    answer = endpoint.invoke_endpoint(text, SessionId=session, ContentType="text/csv", **members)
    return {**json.loads(answer["Body"].read()), "new": answer.get("NewSessionId", "")}


def opened(endpoint: Endpoint, text: str, **members: str) -> str:
    """The id of a new session."""
    match = SESSION.fullmatch(said(endpoint, "NEW_SESSION", text, **members)["new"])
    assert match is not None
    return match[1]


def test_a_session_stays_on_its_instance(endpoint: Endpoint) -> None:
    """Eight sessions find all that they have said, whichever variant and instance opened them."""
    sessions = {opened(endpoint, f"{number}"): [f"{number}"] for number in range(8)}
    parents = set()
    for turn in range(6):
        for session, texts in sessions.items():
            texts.append(f"{turn}")
            answer = said(endpoint, session, f"{turn}")
            parents.add(answer["parent"])
            assert answer["texts"] == texts
    assert len(parents) > 1


def test_a_closed_session_is_refused(endpoint: Endpoint) -> None:
    """CLOSE answers its id; afterwards the container refuses it, and so it does with an unknown one."""
    session = opened(endpoint, "first")
    closed = endpoint.invoke_endpoint('{"requestType": "CLOSE"}', SessionId=session)
    assert (closed["ResponseMetadata"]["HTTPStatusCode"], closed["ClosedSessionId"]) == (200, session)
    for named in (session, "unknown"):
        with pytest.raises(ClientError) as raised:
            endpoint.invoke_endpoint("again", SessionId=named)
        assert raised.value.response["Error"]["Code"] == "ModelError"
        assert "client error (400)" in str(raised.value)


def test_a_session_ends_with_its_instance(endpoint: Endpoint) -> None:
    """Once the instance is replaced, its sessions are refused by a sentence, and others go on."""
    other, session = opened(endpoint, "1", TargetVariant="a"), opened(endpoint, "1", TargetVariant="b")
    above = psutil.Process(said(endpoint, session, "who")["parent"]).parents()
    os.kill(next(process.pid for process in above if "serve" in process.cmdline()), signal.SIGKILL)

    def is_refused() -> bool:
        try:
            said(endpoint, session, "2")
        except ClientError as error:
            return "has ended" in str(error)
        return False

    wait_until(is_refused, 60.0, "the session is refused")
    assert said(endpoint, other, "2")["texts"] == ["1", "2"]
    assert opened(endpoint, "1")
