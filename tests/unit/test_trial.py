"""`tfs-proxy check`: the report, and one request through the script."""

from pathlib import Path

import pytest

from archives import SAVED_MODEL, pack
from tfs_proxy.cli import main

MIRROR = "def handler(data, context): return data.read(), context.request_content_type"


def archive(folder: Path, script: str | None = None, **more: str) -> str:
    files: dict[str, str | bytes] = {"m/1/saved_model.pb": SAVED_MODEL, **more}
    if script is not None:
        files["code/inference.py"] = script
    return str(pack(folder / "model.tar.gz", files))


def test_the_report_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a request the report is all, and the script is not run."""
    assert main(["check", archive(tmp_path, "def handler(d, c): ...\nraise SystemExit")]) == 0

    said = capsys.readouterr().out
    assert "Model m, version 1" in said
    assert "code/inference.py defines handler" in said


def test_a_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The request's answer is shown with its status, type and size."""
    request = tmp_path / "request"
    request.write_text("a,b")

    status = main(
        ["check", archive(tmp_path, MIRROR), "--request", str(request), "--content-type", "text/csv"]
    )

    said = capsys.readouterr().out.splitlines()
    assert status == 0
    assert f"Request: {request}, text/csv, 3 bytes" in said
    assert "Model server (a fake one, which answers zeros): not asked" in said
    assert any(line.startswith("Answer: 200 text/csv, 3 bytes, ") for line in said)
    assert said[-1] == "a,b"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("import tfs_proxy\ndef handler(d, c): raise tfs_proxy.HTTPError(422, 'no')", 3),
        ("def handler(d, c):\n    yield 'a'\n    raise ValueError", 3),
        ("import nothing_of_this_name", 3),
        (MIRROR, 0),
    ],
)
def test_exit_status(tmp_path: Path, script: str, status: int) -> None:
    """3 where the script can't be imported, or answers with an error."""
    request = tmp_path / "request"
    request.write_text("x")

    assert main(["check", archive(tmp_path, script), "--request", str(request)]) == status


def test_requirements_are_not_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where an import fails beside a requirements.txt, that is said."""
    request = tmp_path / "request"
    request.write_text("x")
    path = archive(tmp_path, "import nothing_of_this_name", **{"code/requirements.txt": "nothing"})

    assert main(["check", path, "--request", str(request)]) == 3
    assert "Only serve installs requirements.txt" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["missing.tar.gz"], [".", "--request", "missing"]])
def test_what_is_not_there(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A model or a request that can't be read is 2, and a sentence."""
    assert main(["check", *words]) == 2
    assert "missing" in capsys.readouterr().err


def test_a_stage_is_tried_without_a_model_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report says that the script is the model, and the request goes through it alone."""
    request = tmp_path / "rows.csv"
    request.write_text("1,2\n")
    script = "def model_fn(model_dir): ...\ndef predict_fn(data, model): return data * 2\n"
    model = str(pack(tmp_path / "stage.tar.gz", {"code/inference.py": script}))

    status = main(
        ["check", model, "--request", str(request), "--content-type", "text/csv", "--accept", "text/csv"]
    )

    said = capsys.readouterr().out
    assert status == 0
    assert "code/inference.py is the model itself: it defines model_fn and predict_fn" in said
    assert "Model server" not in said
    assert said.endswith("2.0,4.0\n\n")
