"""The README's classic script and the command that packs it, done and served as they stand there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.stack import serving

README = (Path(__file__).parents[2] / "README.md").read_text()
pytestmark = pytest.mark.tensorflow


@pytest.fixture
def archive(saved_models: Path, tmp_path: Path) -> Path:
    """model.tar.gz as the README packs it, with the SavedModel half_plus_two instead of a Keras file."""
    (script,) = [
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "accept_header" in block
    ]
    (words,) = re.findall(r"^\$ tfs-proxy (pack .* --script .*)$", README, re.MULTILINE)
    shutil.copytree(saved_models / "half_plus_two", tmp_path / "my_model")
    (tmp_path / "inference.py").write_text(script)
    command = [sys.executable, "-m", "tfs_proxy.cli", *words.replace(".keras", "").split()]
    subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path / "model.tar.gz"


def test_the_classic_script_is_served_as_packed(archive: Path) -> None:
    """CSV is answered in JSON, a body that is not CSV is the script's own error, and the model is found."""
    with serving(str(archive), "--model-server", "embedded") as stack:
        stack.wait_for_log("Model my_model, version")
        csv = stack.invoke("1.0\n2.0\n", "text/csv", Accept="application/json")
        assert csv.json == {"predictions": [[2.5], [3.0]]}
        assert csv.headers["content-type"] == "application/json"
        refused = stack.invoke("x", "text/csv")
        assert refused.status == 500
        assert "could not convert string to float" in refused.json["error"]
