"""The package's types as its users see them: mypy and pyright look at scripts beside the installed wheel."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.judges import ROOT, judge
from tfs_proxy.cli import main

UV = Path(sys.executable).parent / "uv"
EXAMPLES = ("digits", "numpy_script", "resnet50_jpeg", "resnet50_tfrecord", "streaming")
STARTED = {"init": [], "init --typed": ["--typed"]}


def run(*words: str | Path) -> None:
    subprocess.run([UV, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def user_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with our wheel; what we depend on comes from the tests' own."""
    folder = tmp_path_factory.mktemp("user")
    run("build", "--quiet", "--offline", "--wheel", "--no-build-isolation", "--out-dir", folder, ROOT)
    run("venv", "--quiet", "--offline", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    run("pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel)
    (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture(params=[*EXAMPLES, *STARTED])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A script of an example, or the one that `init` writes."""
    name: str = request.param
    if name not in STARTED:
        return ROOT / "code_examples" / name / "inference.py"
    assert main(["init", str(tmp_path / "new"), *STARTED[name]]) == 0
    return tmp_path / "new" / "code" / "inference.py"


def test_mypy_knows_the_types(user_python: Path, script: Path) -> None:
    """`mypy --strict`, with no configuration of ours, finds nothing in a script with annotations."""
    checked = judge("typing").attempt(
        "mypy",
        *("--strict", "--config-file=", "--cache-dir=/dev/null", "--follow-imports=silent"),
        *("--python-executable", user_python, script),
    )

    assert (checked.returncode, checked.stdout) == (0, "Success: no issues found in 1 source file\n")


def test_pyright_knows_the_types(user_python: Path, script: Path) -> None:
    installed = judge("typing")
    checked = installed.attempt(
        "node", installed.folder / "pyright" / "index.js", "--pythonpath", user_python, script
    )

    assert checked.returncode == 0, checked.stdout
    assert "0 errors" in checked.stdout


def test_a_wrong_use_is_found(user_python: Path, tmp_path: Path) -> None:
    script = tmp_path / "inference.py"
    script.write_text(
        "from typing import BinaryIO\n\nfrom tfs_proxy import Context\n\n\n"
        "def input_handler(data: BinaryIO, context: Context) -> int:\n    return context.no_such_thing\n"
    )

    checked = judge("typing").attempt(
        "mypy",
        *("--strict", "--config-file=", "--cache-dir=/dev/null"),
        *("--python-executable", user_python, script),
    )

    assert '"Context" has no attribute "no_such_thing"' in checked.stdout
