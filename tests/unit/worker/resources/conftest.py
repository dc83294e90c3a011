"""Apps for tests of resources: a deployment, a scripted model server, and a client."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import falcon.testing
import pytest
from msgspec.structs import replace

from support.deployments import INSTANCE, deployment
from support.fake_upstream import Call, FakeUpstream
from support.signatures import signature_of
from tfs_proxy.serving.script.load import load_script
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.values.deployment import BodyLimits, Doors
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, Target, TensorSpec
from tfs_proxy.worker.app import create_app

LIMIT_BYTES = 1000
JSON_TYPE = {"Content-Type": "application/json"}
SPEC = TensorSpec("x", "DT_FLOAT", (None,))
SIGNATURE = Signature("serving_default", PREDICT_METHOD, {"x": SPEC}, {"y": SPEC})
OTHER = Signature("other", PREDICT_METHOD, {"z": replace(SPEC, name="z")}, {"y": SPEC})


@dataclass
class Says:
    status: int = 200
    body: bytes = b'{"predictions": [2.5]}'
    error: Exception | None = None

    def __call__(self, call: Call) -> ModelAnswer:
        if self.error is not None:
            raise self.error
        url = f"http://127.0.0.1:8501/v1/models/{call.target.model}:{call.target.method}"
        return ModelAnswer(self.status, self.body, JSON_TYPE, url)


@dataclass
class Front:
    """A falcon client of our app, with the `FakeUpstream` behind it."""

    client: Any
    upstream: Any
    says: Says

    def takes(self, *, gives: str = "DT_FLOAT", **inputs: Any) -> None:
        """Give the model these inputs, by type and shape, and records of such an output."""
        output = {"y": TensorSpec("y", gives, (None,))}
        self.upstream.signatures = {"serving_default": replace(signature_of(**inputs), outputs=output)}

    def post(
        self, body: bytes | str = b"{}", path: str = "/invocations", **headers: str
    ) -> falcon.testing.Result:
        """POST a body; header names with underscores for hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        result: falcon.testing.Result = self.client.simulate_post(path, body=body, headers=named)
        return result

    def refusal(self, status: int, body: bytes | str, path: str = "/invocations", **headers: str) -> str:
        """The error that a request is answered with, by this status."""
        result = self.post(body, path, **headers)
        assert result.status_code == status
        return error_of(result)


MakeFront = Callable[..., Front]


@pytest.fixture
def make_front(tmp_path: Path) -> MakeFront:
    """Build an app: ``make_front(script_text, status=..., body=..., error=...)``.

    ``loaded_as`` is the name of its model if that is one of many, ``open_inference`` who answers /v2/,
    ``nickname`` another name of the model, ``serves`` what the model server has loaded.
    """

    def make(
        script_text: str | None = None,
        loaded_as: str | None = None,
        open_inference: str = "model",
        nickname: str | None = None,
        serves: Callable[[Target], bool] | None = None,
        **answer: Any,
    ) -> Front:
        script = None
        if script_text is not None:
            path = tmp_path / "inference.py"
            path.write_text(script_text)
            script = load_script(str(path))
        says = Says(**answer)
        upstream = FakeUpstream({"serving_default": SIGNATURE, "other": OTHER}, says, INSTANCE)
        served = deployment(
            "half",
            script=None if script is None else script.path,
            bodies=BodyLimits(LIMIT_BYTES, 8 * LIMIT_BYTES),
            loaded_as=loaded_as,
            doors=Doors(open_inference=open_inference),
            inner_names={} if nickname is None else {nickname: "half"},
        )
        app = create_app(served, upstream, script, serves=serves)
        return Front(falcon.testing.TestClient(app), upstream, says)

    return make


@pytest.fixture
def front(make_front: MakeFront) -> Front:
    return make_front()


def error_of(result: falcon.testing.Result) -> str:
    """The text of an error answer, whose whole shape is checked: a place in the body has the same text."""
    assert result.headers["content-type"] == "application/json"
    body = json.loads(result.content)
    assert body.keys() - {"details"} == {"error"}
    assert all(each == {"loc": each["loc"], "msg": body["error"]} for each in body.get("details", ()))
    assert isinstance(body["error"], str)
    assert "Traceback" not in body["error"]
    text: str = body["error"]
    return text
