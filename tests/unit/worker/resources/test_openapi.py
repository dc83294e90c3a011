"""GET /openapi.json of a worker: models, and the script's description."""

from typing import Any

import falcon.testing
from openapi_spec_validator import validate

from tfs_proxy.serving.script.script_model import load_script_model
from tfs_proxy.values.deployment import BodyLimits, Deployment, Doors, TimeLimits
from tfs_proxy.worker.app import create_app
from unit.worker.resources.conftest import Front, MakeFront


def invoke_of(front: Front) -> dict[str, Any]:
    """The operation of /invocations, in a document that is valid."""
    result = front.client.simulate_get("/openapi.json")
    assert (result.status_code, result.headers["content-type"]) == (200, "application/json")
    validate(result.json)
    operation: dict[str, Any] = result.json["paths"]["/invocations"]["post"]
    return operation


def test_a_script_model(tmp_path: Any) -> None:
    path = tmp_path / "inference.py"
    path.write_text("def model_fn(d): return 1\ndef input_fn(d, t): ...\ndef predict_fn(d, m): ...")
    script_model = load_script_model(str(path))
    deployment = Deployment(
        *("of_script", {}, (), str(path), (), BodyLimits(1000), TimeLimits(60.0)),
        script_model=str(tmp_path),
        doors=Doors(open_inference="script"),
    )
    app = create_app(deployment, None, script_model)

    document = falcon.testing.TestClient(app).simulate_get("/openapi.json").json

    validate(document)
    operation = document["paths"]["/invocations"]["post"]
    assert list(operation["requestBody"]["content"]) == ["*/*"]
    assert "application/x-npy" in operation["responses"]["200"]["content"]
    assert not [path for path in document["paths"] if path.startswith("/v1")]
    assert "*/*" in document["paths"]["/v2/models/of_script/infer"]["post"]["requestBody"]["content"]


def test_a_script_without_a_description(make_front: MakeFront) -> None:
    """The types that it compares with; the half that it does not have is the conversion's."""
    script = (
        "def input_handler(data, context):\n    if context.request_content_type == 'image/png': return b''"
    )

    operation = invoke_of(make_front(script))

    assert list(operation["requestBody"]["content"]) == ["image/png", "*/*"]
    assert "text/csv" in operation["responses"]["200"]["content"]
    assert "default" in operation["responses"]
