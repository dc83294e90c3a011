"""`tfs-proxy pack` as users run it: what it prints, writes, refuses and leaves."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from support.archives import SAVED_MODEL
from support.stack import Stack, serving
from support.waiting import wait_until
from support.wheels import write_wheel
from tfs_proxy import Client
from tfs_proxy.cli import main
from tfs_proxy.wire.protobuf_writer import field

COMMAND = [sys.executable, "-m", "tfs_proxy.cli", "pack"]
SCRIPT = "def handler(data, context):\n    return b'{}', 'application/json'\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the command works: it has to be empty afterwards."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def model(tmp_path: Path, saved_models: Path) -> Path:
    return saved_models / "half_plus_two"


def pack(
    home: Path, *words: str | Path, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=home.parent,
        env={**os.environ, "TFS_PROXY_HOME": str(home), "TMPDIR": str(home), **(env or {})},
    )


def members(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        return [member.name for member in opened if member.isfile()]


def test_a_saved_model(home: Path, model: Path) -> None:
    """It prints what will be served, and writes the archive; twice the same bytes."""
    script = home.parent / "handler.py"
    script.write_text(SCRIPT)
    done = pack(home, model, "--model-name", "plus", "--version", "3", "--script", script)
    again = pack(
        home, model, "--model-name", "plus", "--version", "3", "--script", script, "-o", "again.tar.gz"
    )

    assert (done.returncode, again.returncode) == (0, 0), done.stderr
    assert "Model plus, version 3 (default: the only one)" in done.stdout
    assert "Next: tfs-proxy serve model.tar.gz" in done.stdout
    written = home.parent / "model.tar.gz"
    assert {"plus/3/saved_model.pb", "code/inference.py"} <= set(members(written))
    assert written.read_bytes() == (home.parent / "again.tar.gz").read_bytes()
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        ("def handler(data, context)\n", 3, "is not valid Python"),
        (f"raise ValueError('no')\n{SCRIPT}", 3, "ValueError: no"),
        (f"import missing_module\n{SCRIPT}", 3, "missing_module"),
    ],
)
def test_a_script_that_can_not_be_used(home: Path, model: Path, script: str, status: int, says: str) -> None:
    """What `check` refuses is not packed, and the old archive stays."""
    (home.parent / "inference.py").write_text(script)
    (home.parent / "model.tar.gz").write_text("old")

    done = pack(home, model, "--script", "inference.py")

    assert done.returncode == status
    assert says in done.stderr
    assert str(home) not in done.stderr
    assert (home.parent / "model.tar.gz").read_text() == "old"
    assert {path.name for path in home.parent.iterdir()} == {"home", "inference.py", "model.tar.gz"}
    assert list(home.iterdir()) == []


@pytest.mark.tensorflow
def test_labels_are_for_one_model(home: Path, saved_models: Path) -> None:
    (home.parent / "labels.txt").write_text("red\ngreen\n")
    done = pack(home, saved_models, "--labels", "labels.txt")

    assert (done.returncode, "are for one model: allocating, bare" in done.stderr) == (2, True), done.stderr
    assert not (home.parent / "model.tar.gz").exists()


@pytest.mark.tensorflow
def test_a_model_that_can_not_answer(home: Path, saved_models: Path) -> None:
    done = pack(home, saved_models / "untracked")

    assert done.returncode == 2
    assert "Nothing was packed: untracked version 1 will fail every predict" in done.stderr
    assert "model.export(FOLDER)" in done.stderr
    assert not (home.parent / "model.tar.gz").exists()


def graph(*nodes: bytes, output: bytes = b"") -> bytes:
    """A saved_model.pb of these nodes, with a signature for predict if it has an output."""
    answered = field(1, b"y") + field(2, field(1, output))
    signature = field(1, b"serving_default") + field(2, field(2, answered))
    signatures = field(5, signature) if output else b""
    listed = b"".join(field(1, node) for node in nodes)
    return field(2, field(1, field(4, b"serve")) + field(2, listed) + signatures)


UNUSABLE = {
    "without its variables": (
        graph(*(field(1, op) + field(2, op) for op in (b"VarHandleOp", b"RestoreV2"))),
        ("m version 1 has no variables/variables.index", "copy the whole folder"),
    ),
    "with a call of Python, whose function it has not": (
        graph(field(1, b"python") + field(2, b"EagerPyFunc"), output=b"python:0"),
        ("m version 1 will fail every predict with 'Missing py trampoline'", "tf.py_function"),
    ),
    "without signatures": (SAVED_MODEL, ("has no signatures",)),
    "damaged": (SAVED_MODEL[:-3], ("m/1/saved_model.pb is damaged",)),
    "empty": (b"", ("m/1/saved_model.pb is damaged",)),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_model_that_no_request_would_get_an_answer_of(home: Path, case: str) -> None:
    """Most would load, and answer every request with an error."""
    content, says = UNUSABLE[case]
    (home.parent / "m" / "1").mkdir(parents=True)
    (home.parent / "m" / "1" / "saved_model.pb").write_bytes(content)

    done = pack(home, "m")

    assert done.returncode == 2
    assert [words for words in says if words not in done.stderr] == []
    assert not (home.parent / "model.tar.gz").exists()


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("model.zip", "a name that ends with .tar.gz"),
        ("no/model.tar.gz", "there is no folder no"),
        ("home.tar.gz", "it is a folder"),
    ],
)
def test_outputs(home: Path, model: Path, output: str, says: str) -> None:
    (home.parent / "home.tar.gz").mkdir()

    done = pack(home, model, "-o", output)

    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.tensorflow
def test_stopped(home: Path, model_files: Path, number: signal.Signals) -> None:
    words = [*COMMAND, str(model_files / "keras3.keras"), "-o", str(home.parent / "model.tar.gz")]
    env = {**os.environ, "TFS_PROXY_HOME": str(home), "TMPDIR": str(home)}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        try:
            assert "exporting" in process.stderr.readline()
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            (child,) = wait_until(lambda: children.read_text().split(), 60, "TensorFlow's process is there")
            process.send_signal(number)
            said = process.stderr.read()
            status = process.wait(60)
        finally:
            process.kill()

    wait_until(lambda: not Path(f"/proc/{child}").exists(), 60, "TensorFlow's process has ended")
    if number is signal.SIGKILL:
        return
    assert (status, "stopped, and nothing was written" in said, "Traceback" in said) == (130, True, False)
    assert list(home.parent.iterdir()) == [home]
    assert list(home.iterdir()) == []


def test_wheels(home: Path, model: Path) -> None:
    """They are those of the image's Python, with what they need in turn, and pure ones are there once."""
    index = home.parent / "index"
    write_wheel(index, "upper", "1.0", needs="lower>=2")
    write_wheel(index, "lower", "2.5")
    for python in ("312", "313"):
        wheel = write_wheel(index, "native", "1.0")
        wheel.rename(index / f"native-1.0-cp{python}-cp{python}-manylinux_2_17_x86_64.whl")
    (home.parent / "inference.py").write_text(SCRIPT)
    (home.parent / "needs.txt").write_text("upper\nnative\n")
    words: list[str | Path] = [model, "--script", "inference.py", "--requirements", "needs.txt", "--wheels"]
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}

    done = pack(home, *words, env=offline)
    both = pack(home, *words, "--python", "3.12", "--python", "3.13", "-o", "both.tar.gz", env=offline)
    other = pack(home, *words, "--machine", "aarch64", "-o", "other.tar.gz", env=offline)

    assert (done.returncode, both.returncode) == (0, 0), done.stderr
    pure = ["code/wheels/lower-2.5-py3-none-any.whl", "code/wheels/upper-1.0-py3-none-any.whl"]
    native = [
        f"code/wheels/native-1.0-cp{python}-cp{python}-manylinux_2_17_x86_64.whl" for python in (312, 313)
    ]
    for archive, expected in {"model": [*pure, native[1]], "both": [*pure, *native]}.items():
        found = members(home.parent / f"{archive}.tar.gz")
        assert "code/requirements.txt" in found
        assert [name for name in found if name.startswith("code/wheels/")] == sorted(expected)
    assert other.returncode == 3
    assert "The wheels for Python 3.13 can't be downloaded" in other.stderr
    assert "native" in other.stderr
    assert not (home.parent / "other.tar.gz").exists()


@pytest.mark.tensorflow
def test_the_order_of_columns_of_a_keras_model(home: Path, model_files: Path) -> None:
    """CSV without a header is read in the order of the model's list of inputs, or of the flag."""
    wrong = pack(home, model_files / "listed.keras", "--csv-columns", "age,size")
    assert (wrong.returncode, "which are age, zoom." in wrong.stderr) == (2, True), wrong.stderr
    for flags, expected in ((), b"321.0\n"), (("--csv-columns", "age,zoom"), b"132.0\n"):
        assert pack(home, model_files / "listed.keras", *flags).returncode == 0
        stack = Stack(str(home.parent / "model.tar.gz"), "--model-server", "embedded")
        try:
            stack.wait_ready()
            assert stack.invoke("1,2,3\n", "text/csv", Accept="text/csv").body == expected
            stack.stop()
        finally:
            stack.kill()


@pytest.mark.tensorflow
def test_names_that_a_graph_can_not_have(home: Path, model_files: Path) -> None:
    """They are recorded, and the order of a dict's columns is said; tables, `Client` and the page have them."""
    tables = home / "tables.json"
    tables.write_text('{"income (USD)": {"mean": [1], "std": [2]}}')
    packed = pack(home, model_files / "dicts.keras", "--standardize", str(tables))
    assert "CSV without a header is read in this order of columns: age,income_USD\n" in packed.stderr
    with (
        serving(str(home.parent / "model.tar.gz"), "--model-server", "embedded") as stack,
        Client(f"http://127.0.0.1:{stack.port}") as client,
    ):
        one = np.ones((1, 1), np.float32)
        answers = [
            dict(client.predict({"age": one, name: 2 * one})) for name in ("income (USD)", "income_USD")
        ]
        csv = stack.invoke("1,2\n", "text/csv").json["predictions"][0]
        facts = stack.ask("GET", "/console/facts.json").json
    assert answers[0]["risk"].tolist() == answers[1]["risk"].tolist() == [np.float32(csv["risk"]).tolist()]
    assert facts["models"]["dicts"]["1"]["ownNames"] == {"income (USD)": "income_USD"}


@pytest.mark.tensorflow
def test_another_order_of_columns_changes_nothing_in_the_folder_that_is_packed(
    home: Path, model_files: Path
) -> None:
    """Its files are linked where the disk allows that."""
    assert pack(home, model_files / "listed.keras").returncode == 0
    folder = home / "unpacked"
    with tarfile.open(home.parent / "model.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    (recorded,) = (path for path in folder.rglob("*") if path.is_file() and "columns" in path.name)
    before = recorded.read_text()

    packed = pack(home, folder, "--csv-columns", "age,zoom")

    assert packed.returncode == 0, packed.stderr
    assert (recorded.read_text(), before) == (before, "zoom,age\n")


@pytest.mark.tensorflow
def test_each_kind_of_file_becomes_a_model_that_answers(home: Path, model_files: Path) -> None:
    """What is in their archives is served from one folder; both generations of Keras, and a SavedModel."""
    files = ("keras2.keras", "keras2_hdf5.h5", "keras3.keras", "keras3_hdf5.h5", "saved")
    for file in files:
        done = pack(home, model_files / file)
        assert (done.returncode, list(home.iterdir())) == (0, []), done.stderr
        with tarfile.open(home.parent / "model.tar.gz") as members_of_it:
            members_of_it.extractall(home.parent / "models", filter="data")
    with serving(str(home.parent / "models"), "--model-server", "embedded") as stack:
        for file in files:
            attributes = {"X_Amzn_SageMaker_Custom_Attributes": f"tfs-model-name={Path(file).stem}"}
            for body, kind in (('{"instances": [[1, 2, 3]]}', "application/json"), ("1,2,3\n", "text/csv")):
                answer = stack.invoke(body, kind, **attributes)
                assert answer.json == {"predictions": [[4.5, 4.5]]}, (file, answer.body)


@pytest.mark.tensorflow
def test_serving_a_file(model_files: Path) -> None:
    """`serve` packs on the way, says so, and answers."""
    stack = Stack(str(model_files / "keras3.keras"), "--model-server", "embedded")
    try:
        stack.wait_ready()
        answer = stack.invoke(json.dumps({"instances": [[1.0, 2.0, 3.0]]}))
        assert answer.json["predictions"] == [[4.5, 4.5]]
        assert f"exporting {model_files / 'keras3.keras'} as a SavedModel" in stack.log
        stack.stop()
        assert list(stack.home.iterdir()) == []
    finally:
        stack.kill()


@pytest.mark.tensorflow
def test_check_of_a_model_file_checks_what_serve_would_serve(
    model_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Keras file has the report of the SavedModel that it becomes."""
    assert main(["check", str(model_files / "keras3.keras")]) == 0
    assert "Model keras3, version 1" in capsys.readouterr().out


def test_serving_a_file_that_is_refused(model_files: Path) -> None:
    """The sentence and the exit status are those of `pack`."""
    stack = Stack(str(model_files / "refused" / "lambda.keras"), "--model-server", "embedded")
    try:
        assert stack.process.wait(120) == 2
        wait_until(lambda: "is a Lambda layer" in stack.log, 60, "the log says why")
    finally:
        stack.kill()
