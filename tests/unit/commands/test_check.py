"""`tfs-proxy check`: the report, and one request through the script."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from openapi_spec_validator import validate

from support.archives import SAVED_MODEL, pack
from support.signature_models import write_signature_model
from tfs_proxy.data.capture import CapturedRequest, line_of
from tfs_proxy.wire.protobuf_writer import field
from tfs_proxy.wire.protos import SavedModel
from unit.conftest import Command

MIRROR = "def handler(data, context): return data.read(), context.request_content_type"


def graph(op: bytes = b"NoOp", library: bytes = b"NoOp") -> bytes:
    """A saved_model.pb of a node and a function with one."""
    function = field(1, field(1, b"f")) + field(3, field(1, b"n") + field(2, library))
    nodes = field(1, field(1, b"n") + field(2, op)) + field(1, field(1, b"called") + field(2, b"f"))
    return field(2, field(1, field(4, b"serve")) + field(2, nodes + field(2, field(1, function))))


def archive(folder: Path, script: str | None = None, **more: str) -> str:
    files: dict[str, str | bytes] = {"m/1/saved_model.pb": SAVED_MODEL, **more}
    if script is not None:
        files["code/inference.py"] = script
    return str(pack(folder / "model.tar.gz", files))


def test_the_report_and_the_import(tmp_path: Path, run: Command) -> None:
    said = run("check", archive(tmp_path, f"print('imported')\n{MIRROR}"))
    assert "Model m, version 1" in said.out
    assert "code/inference.py defines handler" in said.out
    assert "imported" not in said.out
    assert "imported" in said.err


def test_a_script_is_asked_for_its_health_once(tmp_path: Path, run: Command) -> None:
    """After its init; --multi-model says it in the model's line; what init needs may be away here."""
    script = f"def init(context): print('began')\nasync def health(context): print('asked')\n{MIRROR}"
    lines = run("check", archive(tmp_path, script)).out.splitlines()
    assert [line for line in lines if line in ("began", "asked")] == ["began", "asked"]
    assert lines[-1] == "health(context) succeeds."
    assert "; health(context) succeeds." in run("check", "--multi-model", tmp_path).out

    said = run("check", archive(tmp_path, script.replace("print('began')", "1 / 0")))
    assert "Not checked: health(context), since code/inference.py: init(context) failed" in said.out


@pytest.mark.parametrize(
    ("folder", "given", "named"),
    [
        ("num/1", "num", "num, version 1"),
        ("num", "num", "num, version 1"),
        ("num/7", "num/7", "num, version 7"),
        ("my num/1", "my num", "model, version 1"),
    ],
)
def test_a_folder_of_one_model_gives_its_name(
    tmp_path: Path, run: Command, folder: str, given: str, named: str
) -> None:
    """A folder of versions, a SavedModel and one version of it are called as `pack` calls them."""
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "saved_model.pb").write_bytes(SAVED_MODEL)

    assert f"Model {named}" in run("check", tmp_path / given).out


BROKEN = {
    "an import that is not there": (
        f"import nothing_of_this_name\n{MIRROR}",
        "No module named 'nothing_of_this_name'",
    ),
    "sys.exit": (f"{MIRROR}\nimport sys\nsys.exit(0)", "inference.py:3 in <module>: SystemExit: 0"),
    "os._exit": (f"{MIRROR}\nimport os\nos._exit(0)", "the import ends its process (exit status 0)"),
    "a signal": (f"{MIRROR}\nimport os\nos.kill(os.getpid(), 11)", "import ends its process (SIGSEGV)"),
    "no end": (f"{MIRROR}\nimport time\ntime.sleep(600)", "the import takes longer than 2 s"),
    "no handler": ("x = 1", "defines no handler: it must define handler(data, context)"),
    "a misspelt one": (
        "def inputs_handler(d, c): ...",
        "It defines inputs_handler: did you mean input_handler?",
    ),
    "one argument": (
        "def handler(data): ...",
        "line 1: handler(data) can't be called with 2 positional arguments",
    ),
    "one found at import": ("handler = len", "handler(obj, /) can't be called with 2 positional arguments"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_script_that_cannot_be_used(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """3 after the report, and the cause as the last line, whatever the script does to its process."""
    script, words = BROKEN[case]
    if case == "no end":
        monkeypatch.setenv("SAGEMAKER_TFS_WAIT_TIME_SECONDS", "2")

    said = run("check", archive(tmp_path, script), ends=3)
    assert "Model m, version 1" in said.out
    last = said.err.splitlines()[-1]
    assert words in last
    assert last.startswith("tfs-proxy: code/inference.py")


def test_a_syntax_error_is_the_first_line(tmp_path: Path, run: Command) -> None:
    """Nothing else is said of such a script, not even that it defines no handler."""
    said = run("check", archive(tmp_path, "def handler(d, c:"), ends=3)
    assert said.out == ""
    assert said.err == "tfs-proxy: code/inference.py is not valid Python (line 1: '(' was never closed).\n"


def test_a_child_of_the_script_does_not_outlive_check(tmp_path: Path, run: Command) -> None:
    """Threads and processes that the import starts hold nothing up."""
    script = (
        "import subprocess, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        f"subprocess.Popen(['sleep', '600'])\n{MIRROR}"
    )

    run("check", archive(tmp_path, script))


WARNED: dict[str, tuple[dict[str, str | bytes], str]] = {
    "a half that is misspelt": (
        {"code/inference.py": "def inputs_handler(d, c): ...\ndef output_handler(r, c): ..."},
        "defines inputs_handler, which is not called: did you mean input_handler?",
    ),
    "a script that is not healthy": (
        {"code/inference.py": f"def health(context): raise OSError('no store')\n{MIRROR}"},
        "health(context) of the script failed: OSError: no store.",
    ),
    "a model that no request reaches": ({}, "m version 1 has no signatures"),
    "an op that no server has": (
        {"m/1/saved_model.pb": graph(library=b"MyOwnOp")},
        "m version 1 uses the op MyOwnOp, which neither tensorflow_model_server nor the embedded server has",
    ),
    "an op that one server has": (
        {"m/1/saved_model.pb": graph(b"SimpleMLLoadModelFromPath")},
        "op SimpleMLLoadModelFromPath: tensorflow_model_server has it, the embedded server has not",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_warnings_count_where_check_is_strict(tmp_path: Path, run: Command, case: str) -> None:
    """A warning is a line, and exit status 2 with --strict."""
    files, words = WARNED[case]
    path = str(pack(tmp_path / "model.tar.gz", {"m/1/saved_model.pb": SAVED_MODEL, **files}))

    lines = run("check", path).out.splitlines()
    assert any(line.startswith("Warning: ") and words in line for line in lines)
    run("check", path, "--strict", ends=2)


def test_a_model_that_would_not_load_fails(tmp_path: Path, run: Command) -> None:
    """Damaged recorded requests, a pipe in their place, and an op that nobody registers."""
    version, warm_up = tmp_path / "m" / "1", "assets.extra/tf_serving_warmup_requests"
    (version / "assets.extra").mkdir(parents=True)
    saved_model = SavedModel.FromString(SAVED_MODEL)
    listed = b"\n" + bytes([len("MyOwnOp")]) + b"MyOwnOp"
    listed = b"\n" + bytes([len(listed)]) + listed
    saved_model.meta_graphs[0].meta_info_def.MergeFromString(b"\x12" + bytes([len(listed)]) + listed)
    cases: list[tuple[bytes, Callable[[], object], str]] = [
        (SAVED_MODEL, lambda: (version / warm_up).write_bytes(b"junk" * 10), "TFRecord 1, at byte 0"),
        (SAVED_MODEL, lambda: os.mkfifo(version / warm_up), f"{warm_up} is not a file"),
        (saved_model.SerializeToString(), lambda: None, "its op MyOwnOp"),
    ]
    for graph, prepare, named in cases:
        (version / warm_up).unlink(missing_ok=True)
        (version / "saved_model.pb").write_bytes(graph)
        prepare()

        said = run("check", tmp_path, ends=2).out
        assert "m version 1 won't load: " in said
        assert named in said


FORMS = {
    "frozen.pb": "frozen.pb is a frozen graph, as TensorFlow 1 writes it",
    "ckpt-1.index": "ckpt-1.index is a checkpoint: weights without a graph",
    "small.tflite": "small.tflite is TensorFlow Lite's format, which TensorFlow has moved to LiteRT",
}
CURES = ("tf.saved_model.save(", "model.export(", "pack the model that it was", "give its folder")


@pytest.mark.parametrize(
    ("given", "file", "named"),
    [
        *(("m", name, named) for name, named in FORMS.items()),
        ("m", "1/saved_model.pb", "saved_model.pb is a frozen graph, as TensorFlow 1 writes it"),
        ("m/saved_model.pb", "saved_model.pb", "saved_model.pb is one file of a SavedModel"),
    ],
)
def test_other_forms_of_a_graph_are_recognised(
    tmp_path: Path, given: str, file: str, named: str, run: Command
) -> None:
    """The sentence about the file, or a folder that holds it, has what makes a SavedModel of it."""
    path = tmp_path / "m" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n\x03\n\x01x")  # a GraphDef of one node

    said = run("check", tmp_path / given, ends=2).err
    assert named in said
    assert any(cure in said for cure in CURES)


def test_a_request(tmp_path: Path, run: Command) -> None:
    """The request's answer is shown with its status, type and size."""
    request = tmp_path / "request"
    request.write_text("a,b")

    words = ["--request", request, "--content-type", "text/csv"]
    said = run("check", archive(tmp_path, MIRROR), *words).out.splitlines()
    assert f"Request: {request}, text/csv, 3 bytes" in said
    assert "Model server (a fake one, which answers zeros): not called" in said
    assert any(line.startswith("Answer: 200 text/csv, 3 bytes, ") for line in said)
    assert said[-1] == "a,b"


@pytest.mark.parametrize("words", [["missing.tar.gz"], [".", "--request", "missing"]])
def test_what_is_not_there(words: list[str], run: Command) -> None:
    """A model or a request that can't be read is 2, and a sentence."""
    assert "missing" in run("check", *words, ends=2).err


def test_a_stage_is_tried_without_a_model_server(tmp_path: Path, run: Command) -> None:
    """The report says that the script is the model, and the request goes through it alone."""
    request = tmp_path / "rows.csv"
    request.write_text("1,2\n")
    script = "def model_fn(model_dir): ...\ndef predict_fn(data, model): return data * 2\n"
    model = str(pack(tmp_path / "stage.tar.gz", {"code/inference.py": script}))

    words = ["--request", request, "--content-type", "text/csv", "--accept", "text/csv"]
    said = run("check", model, *words).out
    assert "code/inference.py is the model itself: it defines model_fn and predict_fn" in said
    assert "Model server" not in said
    assert said.endswith("2.0,4.0\n\n")


def test_a_file_of_data_capture_is_many_requests(tmp_path: Path, run: Command) -> None:
    """Each with its own content type and attributes, and --content-type for all if it is given."""
    attributes = (
        "def handler(data, context): return data.read() + str(context.custom_attributes).encode(), 'a/b'"
    )
    file = tmp_path / "20-23-626.jsonl"
    requests = CapturedRequest(b"1,2", "text/csv", None), CapturedRequest(b"\xffraw", None, "trace=9")
    lines = [line_of(request, b"3", "text/csv", None) for request in requests]
    file.write_bytes(b"".join(lines) + b'{"captureData":{"endp')  # the last one was torn
    words = ["check", archive(tmp_path, attributes), "--request", str(file)]

    said = run(*words).out
    assert f"Request: {file}, text/csv, 3 bytes" in said
    assert f"Request: {file}, no Content-Type, 4 bytes" in said
    assert "1,2None" in said
    assert run(*words, "--content-type", "a/c").out.count(f"Request: {file}, a/c") == 2


def test_the_name_of_a_request_gives_its_type(tmp_path: Path, run: Command) -> None:
    """As for `ask`; --content-type decides otherwise, and an unknown ending gives none."""
    for name, kind in (("a.csv", "text/csv"), ("a.npy", "application/x-npy"), ("a.x", "no Content-Type")):
        (tmp_path / name).write_text("1,2")
        words = ["check", archive(tmp_path, MIRROR), "--request", str(tmp_path / name)]
        assert f"{name}, {kind}, 3 bytes" in run(*words).out
    assert "a.x, a/b, 3 bytes" in run(*words, "--content-type", "a/b").out


def test_a_damaged_file_of_data_capture_is_refused(tmp_path: Path, run: Command) -> None:
    file = tmp_path / "day.jsonl"
    file.write_bytes(b'{"captureData":{"endpointOutput":{"data":"1","encoding":"CSV"}},"eventMetadata":{}}\n')

    assert (
        f"{file}, line 1: it has no captured request"
        in run("check", archive(tmp_path, MIRROR), "--request", file, ends=2).err
    )


DESCRIBED = f"import tfs_proxy\ntfs_proxy.describe(accepts={{'text/csv': str}})\n{MIRROR}"
TYPED = (
    "import dataclasses\n@dataclasses.dataclass\nclass Row: x: float\n"
    "def handler(row: Row, context) -> Row: return row\n"
)


@pytest.mark.parametrize(("script", "kind"), [(DESCRIBED, "text/csv"), (TYPED, "application/json")])
def test_the_document(tmp_path: Path, run: Command, script: str, kind: str) -> None:
    """Standard output is the OpenAPI document alone, with what the script describes; no server is started."""
    said = run("check", archive(tmp_path, script), "--openapi")
    document = json.loads(said.out)
    validate(document)
    assert document["info"]["title"] == "m"
    assert list(document["paths"]["/invocations"]["post"]["requestBody"]["content"]) == [kind]
    assert "Model m, version 1" in said.err


@pytest.mark.parametrize("other", [["--request", "body"], ["--multi-model", "."]])
def test_the_document_comes_alone(other: list[str], run: Command) -> None:
    assert "--openapi takes neither" in run("check", "--openapi", *other, ends=2).err


def test_packages_that_only_serve_installs_are_no_warning(tmp_path: Path, run: Command) -> None:
    """A request can't be answered without them."""
    script = f"import nothing_of_this_name\n{MIRROR}"
    files = {"code/inference.py": script, "code/requirements.txt": "nothing"}
    model = write_signature_model(tmp_path / "m", {}, {})
    path = str(pack(tmp_path / "model.tar.gz", files, {"m/1": model}))

    assert (
        "Not checked: code/inference.py could not be tried, because nothing_of"
        in run("check", path, "--strict").out
    )
    assert "Only serve installs requirements.txt" in run("check", path, "--request", __file__, ends=3).err
