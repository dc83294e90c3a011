"""What `tfs-proxy init` writes, judged by pytest, ruff and mypy, and packed as its README says."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.signature_models import tensor, write_signature_model
from tfs_proxy.cli import main

ROOT = Path(__file__).parents[4]
RULES = ROOT / "pyproject.toml"
RUFF = str(Path(sys.executable).with_name("ruff"))


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two of them: without a model, and for one of two inputs."""
    folder = tmp_path_factory.mktemp("projects")
    write_signature_model(
        folder / "models" / "mix" / "1",
        {"a": tensor("DT_FLOAT", None, 4), "b": tensor("DT_STRING", None)},
        {"scores": tensor("DT_FLOAT", None, 2), "labels": tensor("DT_STRING", None, 2)},
    )
    assert main(["init", str(folder / "plain")]) == 0
    assert main(["init", str(folder / "mix"), "--model", str(folder / "models")]) == 0
    return folder


def run(*argv: str | Path, folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["plain", "mix"])
def test_it_passes_its_own_tests(projects: Path, name: str) -> None:
    assert "2 passed" in run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", folder=projects / name
    )


def test_a_machine_without_pytest_is_told_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pytest", None)
    assert main(["init", str(tmp_path / "new")]) == 0
    assert "Test: pip install pytest && python -m pytest " in capsys.readouterr().out


def test_ruff_has_nothing_against_it(projects: Path) -> None:
    """By its own defaults, and by the rules of this repository: but tests assert, and are not a package."""
    for rules in (
        ["--isolated"],
        [f"--config={RULES}", "--config=lint.per-file-ignores={'**/tests/*'=['S101']}"],
    ):
        ignored = [] if rules == ["--isolated"] else ["--ignore=INP001"]
        run(RUFF, "check", "--no-cache", *rules, *ignored, "plain", "mix", folder=projects)
        run(RUFF, "format", "--no-cache", "--check", *rules, "plain", "mix", folder=projects)


@pytest.mark.parametrize("name", ["plain", "mix"])
def test_mypy_has_nothing_against_it(projects: Path, name: str) -> None:
    files = ("code/inference.py", "tests/test_inference.py")
    run(sys.executable, "-m", "mypy", "--strict", "--config-file=", *files, folder=projects / name)


def test_the_archive_that_its_readme_makes(projects: Path, tmp_path: Path) -> None:
    """`check` of the folder and `pack` of its parts take it as it stands."""
    readme = (projects / "mix" / "README.md").read_text()
    packing = next(line for line in readme.splitlines() if line.startswith("tfs-proxy pack "))
    *command, _ = shlex.split(packing)[1:]

    run(sys.executable, "-m", "tfs_proxy.cli", "check", "--strict", ".", folder=projects / "mix")
    archive = tmp_path / "model.tar.gz"
    run(sys.executable, "-m", "tfs_proxy.cli", *command, str(archive), folder=projects / "mix")

    said = run(
        *(sys.executable, "-m", "tfs_proxy.cli", "check", str(archive), "--request", "request.json"),
        *("--content-type", "application/json"),
        folder=projects / "mix",
    )
    assert "Answer: 200 application/json" in said
