"""`--reload` exchanges what serves without a failed request."""

from collections import Counter
from pathlib import Path

import pytest

from contract.doors import Load, serving, until
from contract.stacks import EMBEDDED

pytestmark = pytest.mark.tensorflow

SCRIPT = """
def model_fn(model_dir):
    return {answer!r}


def transform_fn(model, data, content_type, accept):
    return model, "text/plain"
"""
TWO = {"SAGEMAKER_GUNICORN_WORKERS": "2"}


def test_new_code(tmp_path: Path, either: dict[str, str]) -> None:
    """Changed code serves once it has loaded; broken code never does, and the old one goes on."""
    script = tmp_path / "code" / "inference.py"
    script.parent.mkdir()
    script.write_text(SCRIPT.format(answer="first"))
    with serving("serve", str(tmp_path), "--reload", env={**TWO, **either}) as running, Load(running) as load:
        load.wait_for_more()
        script.write_text(SCRIPT.format(answer="second"))
        running.named("the new code serves")
        load.wait_for_more()
        script.write_text("import no_such_module_here\n" + SCRIPT.format(answer="never"))
        running.named("no_such_module_here")
        seen = load.bodies[b"second"]
        until(lambda: load.bodies[b"second"] > seen + 40, "the one before goes on")
        script.write_text(SCRIPT.format(answer="third"))
        until(lambda: load.bodies[b"third"] > 40, "the mended script answers")
        fates = load.finish()

    assert fates == Counter({"200": sum(load.bodies.values())})
    assert set(load.bodies) == {b"first", b"second", b"third"}


def test_a_new_version(saved_models: Path, tmp_path: Path) -> None:
    """A new version serves once it is ready, and the old one until then."""
    model = tmp_path / "models" / "versions"
    model.mkdir(parents=True)
    (model / "1").symlink_to(saved_models / "versions" / "1")
    words = ("serve", str(tmp_path / "models"), "--reload", *EMBEDDED)
    with serving(*words) as running, Load(running) as load:
        load.wait_for_more()
        (model / "2").symlink_to(saved_models / "versions" / "2")
        until(lambda: any(b"3.5" in body for body in list(load.bodies)), "version 2 answers")
        load.wait_for_more()
        fates = load.finish()
        states = running.ask("GET", "/v1/models/versions").json["model_version_status"]

    assert fates == Counter({"200": sum(load.bodies.values())})
    assert set(load.bodies) == {
        b'{\n    "predictions": [2.5\n    ]\n}',
        b'{\n    "predictions": [3.5\n    ]\n}',
    }
    assert {each["version"] for each in states if each["state"] == "AVAILABLE"} >= {"2"}
