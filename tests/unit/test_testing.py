"""`tfs_proxy.testing`: scripts called in a unit test, with a fake model server."""

import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.archives import pack
from support.signature_models import tensor, write_signature_model
from tfs_proxy import testing
from tfs_proxy.values.errors import ArchiveError, ScriptLoadError
from tfs_proxy.values.signature import TensorSpec

EXAMPLES = Path(__file__).resolve().parents[2] / "code_examples"
HALF = testing.signature(
    {"x": TensorSpec("x", "DT_FLOAT", (None,))}, {"y": TensorSpec("y", "DT_FLOAT", (None,))}
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two models of one signature, and a script that imports a module beside it."""
    model = write_signature_model(
        tmp_path / "model",
        {"x": tensor("DT_FLOAT", None, 2)},
        {"y": tensor("DT_FLOAT", None), "name": tensor("DT_STRING", None, 3)},
    )
    script = (
        "from beside_it import MARK\n"
        "def input_handler(data, context): return context.default_input(data)\n"
        "def output_handler(response, context):\n"
        "    return str([MARK, response.outputs['y'].tolist(), response.outputs['name'].shape])\n"
    )
    files = {"code/inference.py": script, "code/beside_it.py": "MARK = 'here'"}
    return pack(tmp_path / "model.tar.gz", files, dict.fromkeys(("a/1", "b/1", "b/2"), model))


def test_objects_are_posted_as_json(tmp_path: Path) -> None:
    """What can't be sent is refused before the script is called."""
    (tmp_path / "inference.py").write_text("def handler(data, context): return data.read()")
    with testing.load(tmp_path / "inference.py", signatures=HALF) as script:
        assert script.post({"x": np.arange(2)}).text == '{"x":[0,1]}'
        assert script.post([{"x": 1}], None).text == '[{"x":1}]'
        with pytest.raises(TypeError, match="is sent as JSON, and not as text/csv"):
            script.post({"x": 1}, "text/csv")
        with pytest.raises(TypeError, match="not JSON serializable: object"):
            script.post({"x": object()})


def test_an_archive(archive: Path) -> None:
    """Its script answers, the fake model server with zeros of the signature's shapes, one per record."""
    began = time.process_time()  # what it costs here, whatever else the machine does
    with testing.load(archive) as script:
        reply = script.post("[[1, 2], [3, 4]]")
    seconds = time.process_time() - began

    assert (reply.status, reply.text) == (200, "['here', [0.0, 0.0], (2, 3)]")
    assert reply.content_type == "application/json"
    [call] = script.calls
    assert (call.target.model, call.inputs["x"].tolist()) == ("a", [[1.0, 2.0], [3.0, 4.0]])
    assert seconds < 1
    assert "beside_it" not in sys.modules
    assert not any("tfs-proxy-test" in path for path in sys.path)


def test_outputs_that_no_model_has(archive: Path) -> None:
    """Names are the signature's: a slip in the test is a 500 with a reason in the log."""
    with testing.load(archive, outputs={"z": [1]}) as script:
        assert script.post("[[3, 4]]").status == 500


def test_a_model_server_refuses(archive: Path) -> None:
    """Shapes and models that a model server would refuse are refused, with its statuses."""
    with testing.load(archive) as script:
        assert script.post("[[1, 2, 3]]").status == 400
        assert script.post("[[1, 2]]", custom_attributes="tfs-model-name=c").status == 404
        assert script.post("[[1, 2]]", custom_attributes="tfs-model-name=b,tfs-model-version=3").status == 404
        assert script.post("[[1, 2]]", custom_attributes="tfs-model-name=b,tfs-model-version=1").status == 200


def test_a_model_without_a_script(tmp_path: Path) -> None:
    """The default conversion answers, in every form that Accept asks for."""
    floats = tensor("DT_FLOAT", None)
    model = write_signature_model(tmp_path / "model", {"x": floats}, {"y": floats})
    archive = pack(tmp_path / "model.tar.gz", {}, {"m/1": model})
    with testing.load(archive, outputs=lambda inputs: {"y": inputs["x"] * 2}) as served:
        assert served.post("1\n2\n", "text/csv", "text/csv").text == "2.0\n4.0\n"
        assert served.post('{"instances": [1, 2]}').json == {"predictions": [2.0, 4.0]}
        assert served.post('{"inputs": {"x": [1, 2]}}').json == {"outputs": [2.0, 4.0]}
        assert served.post('{"examples": [{}]}', custom_attributes="tfs-method=regress").json == {
            "results": [0.0]
        }
        assert served.post("no json").status == 400


def test_a_stream_that_breaks(tmp_path: Path) -> None:
    """What came before the error is there, and it is said that the answer broke off."""
    path = tmp_path / "inference.py"
    path.write_text("def handler(data, context):\n    yield 'a'\n    raise ValueError\n")
    with testing.load(path) as script:
        reply = script.post()

    assert (reply.pieces, reply.broken) == ((b"a",), True)


def test_what_can_not_be_loaded(tmp_path: Path) -> None:
    """The errors are those of the start."""
    path = tmp_path / "inference.py"
    path.write_text("import nothing_of_this_name")
    with pytest.raises(ScriptLoadError, match="nothing_of_this_name"), testing.load(path):
        pass
    with pytest.raises(ArchiveError, match="no file or folder"), testing.load(tmp_path / "missing"):
        pass


def test_the_documented_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page about scripts shows runs as it stands there."""
    page = (EXAMPLES.parent / "docs" / "how-to" / "scripts.md").read_text()
    blocks = dict(re.findall(r'title="([^"]+\.py)"\n(.*?)```', page, re.DOTALL))
    script = tmp_path / "arrays" / "code" / "inference.py"
    script.parent.mkdir(parents=True)
    script.write_text(blocks["arrays/code/inference.py"])
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}

    exec(blocks["test_script.py"], names)

    names["test_arrays"]()
