"""A script that is the model itself, behind /invocations: the contract of AWS's toolkits."""

from pathlib import Path

import pytest

from tfs_proxy import testing
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import DiscoveryError, ScriptLoadError

MODEL_FN = """
class Model:
    def predict(self, data):
        return data * 2

def model_fn(model_dir):
    return Model()
"""


def model_folder(tmp_path: Path, script: str, name: str = "inference.py") -> Path:
    path = tmp_path / "folder" / "code" / name
    path.parent.mkdir(parents=True)
    path.write_text(script)
    return tmp_path / "folder"


def test_the_default_accept_is_a_setting(tmp_path: Path) -> None:
    """A script model in the middle of a pipeline gets no Accept and must choose (docs/reference/sagemaker.md)."""
    settings = Settings.from_env({"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv"})
    with testing.load(model_folder(tmp_path, MODEL_FN), settings=settings) as script:
        silent, any_type, asked = (
            script.post("[[1]]", accept=accept) for accept in (None, "*/*", "application/json")
        )

    assert [reply.content_type for reply in (silent, any_type, asked)] == ["text/csv"] * 2 + [
        "application/json"
    ]


def test_a_function_with_one_argument_more_gets_a_context(tmp_path: Path) -> None:
    """Custom attributes go in and out by it."""
    text = """
def model_fn(model_dir, context):
    assert context.system_properties["model_dir"] == model_dir
    return "model"

def predict_fn(data, model, context):
    context.set_custom_attributes({"seen": context.custom_attributes})
    return [context.get_request_header(0, "x-amzn-sagemaker-inference-id"), context.inference_id]
"""
    with testing.load(model_folder(tmp_path, text)) as script:
        reply = script.post("[1]", custom_attributes="a=1", headers={"X-Amzn-SageMaker-Inference-Id": "7"})

    assert reply.json == ["7", "7"]
    assert reply.headers["x-amzn-sagemaker-custom-attributes"] == "seen=a=1"


@pytest.mark.slow
def test_the_toolkits_own_modules_can_be_imported(tmp_path: Path) -> None:
    """A script as written for the scikit-learn container runs unchanged, old imports and all."""
    text = """
from sklearn.externals import joblib
from sagemaker_containers.beta.framework import (
    content_types, encoders, env, modules, transformer, worker)
import sagemaker_inference.decoder

def model_fn(model_dir):
    return joblib.hash

def input_fn(input_data, content_type):
    return sagemaker_inference.decoder.decode(input_data, content_type)

def predict_fn(input_data, model):
    return input_data

def output_fn(prediction, accept):
    return worker.Response(encoders.encode(prediction, accept), mimetype=accept)
"""
    with testing.load(model_folder(tmp_path, text)) as script:
        good = script.post("1,2\n", "text/csv", "text/csv")
        image, asked = script.post(b"", "image/png"), script.post("[1]", accept="image/png")

    assert (good.status, good.content_type, good.text) == (200, "text/csv", "1.0,2.0\n")
    assert (image.status, asked.status) == (415, 406)


def test_a_response_of_flasks_shape_is_an_answer(tmp_path: Path) -> None:
    text = """
class Response:
    status_code, content_type, headers = 202, "text/csv; charset=utf-8", {"Content-Type": "text/csv", "X-A": "b"}
    def get_data(self):
        return b"1"

def model_fn(model_dir):
    return None

def transform_fn(model, data, content_type, accept):
    return Response()
"""
    with testing.load(model_folder(tmp_path, text)) as script:
        reply = script.post("[1]")

    assert (reply.status, reply.body, reply.headers["x-a"]) == (202, b"1", "b")
    assert reply.content_type.startswith("text/csv")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("raise ValueError('no such column')", 500, "no such column"),
        ("import tfs_proxy; raise tfs_proxy.HTTPError(422, 'row 3 is short')", 422, "row 3 is short"),
        ("return object()", 500, "can't be written as JSON"),
    ],
)
def test_what_a_function_raises_is_answered_as_for_handlers(
    tmp_path: Path, body: str, status: int, words: str
) -> None:
    """An exception is a 500 with its text, HTTPError has the status that it names."""
    text = f"{MODEL_FN}\ndef predict_fn(data, model):\n    {body}\n"
    with testing.load(model_folder(tmp_path, text)) as script:
        reply = script.post("[1]")

    assert reply.status == status
    assert words in reply.json["error"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("def input_fn(data, content_type): ...", "defines no model_fn"),
        (
            f"{MODEL_FN}\ndef transform_fn(a, b, c, d): ...\ndef input_fn(a, b): ...",
            "transform_fn and input_fn",
        ),
        ("def model_fn(): ...", r"model_fn\(\) can't be called with 1 argument"),
        ("def model_fn(model_dir): raise OSError('no file')", "failed: OSError: no file"),
        ("def model_fn(model_dir): return 7", "of type int, has no predict"),
        ("model_fn = 7", "model_fn is not a function"),
    ],
)
def test_a_stage_that_cannot_answer_ends_the_start(tmp_path: Path, script: str, words: str) -> None:
    """Each reason is one sentence that names the function."""
    with pytest.raises(ScriptLoadError, match=words), testing.load(model_folder(tmp_path, script)):
        pass


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("def handler(data, context): ...", "its handler needs a SavedModel"),
        ("x = 1", r"code/inference.py must define model_fn\(model_dir\), and it does not"),
        ("def modelfn(model_dir): ...", r"It defines modelfn: did you mean model_fn\?"),
        ("def", r"but it is not valid Python \(line 1"),
    ],
)
def test_an_archive_of_neither_kind_is_refused(tmp_path: Path, script: str, words: str) -> None:
    with (
        pytest.raises((DiscoveryError, ScriptLoadError), match=words),
        testing.load(model_folder(tmp_path, script)),
    ):
        pass


def test_functions_may_come_from_another_module(tmp_path: Path) -> None:
    """A star import hides them from a reader, not from the start."""
    root = model_folder(tmp_path, "from elsewhere import *\n")
    (root / "code" / "elsewhere.py").write_text(MODEL_FN)
    with testing.load(root) as script:
        assert script.post("[1]").json == [2]

    (root / "code" / "elsewhere.py").write_text("x = 1\n")
    with pytest.raises(ScriptLoadError, match="defines no model_fn"), testing.load(root):
        pass
