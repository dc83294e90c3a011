"""What decides between models and a stage, and what the report says of either."""

from pathlib import Path

import pytest

from tfs_proxy.model.report.served import look_into
from tfs_proxy.model.report.startup import Report, describe
from tfs_proxy.serving.script.load import load_script
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ScriptLoadError, SettingsError
from tfs_proxy.values.resources import Resources
from tfs_proxy.wire.protos import MetaGraphDef, SavedModel, SignatureDef, TensorInfo, TensorShapeProto

STAGE = "def model_fn(model_dir): ...\ndef predict_fn(data, model): ...\n"
HANDLER = "def handler(data, context): ...\n"


def folder(root: Path, script: str, *, model: bool, name: str = "inference.py") -> Path:
    """A model folder, with a SavedModel in name only where ``model`` says so."""
    write(root / "code" / name, script)
    if model:
        write_model(root / "m/1")
    return root


def test_without_a_saved_model_the_script_is_the_model(tmp_path: Path) -> None:
    """The report says which functions are its own; the model's own files are no leftovers."""
    root = folder(tmp_path / "x", STAGE, model=False)
    (root / "model.joblib").touch()

    assert text_on(root).splitlines() == [
        f"Serving from {root}",
        (
            "Script: code/inference.py is the model itself: it defines model_fn and predict_fn "
            "(and the default of input_fn and output_fn); no model server"
        ),
        "Processes: 2 workers (gthread) of 128 threads, one for each core",
    ]


def test_a_saved_model_wins_over_a_stages_functions(tmp_path: Path) -> None:
    root = folder(tmp_path / "x", STAGE + HANDLER, model=True)
    assert look_into(root, Settings.from_env({})).script_model is None
    assert "Note: model_fn and predict_fn in code/inference.py are not called" in text_on(root)

    alone = folder(tmp_path / "y", STAGE, model=True)
    with pytest.raises(ScriptLoadError, match="Its model_fn is for archives without a SavedModel"):
        load_script(str(alone / "code" / "inference.py"))


def test_the_only_model_can_be_given_a_name(tmp_path: Path) -> None:
    one = folder(tmp_path / "x", HANDLER, model=True)
    assert "Model my-service, version 1" in text_on(one, TFS_PROXY_MODEL_NAME="my-service")
    assert "MODEL_NAME" not in text_on(one, MODEL_NAME="of the script's own environment")

    write_model(one / "n/1")
    said = text_on(one, TFS_PROXY_MODEL_NAME="my-service")
    assert "Note: TFS_PROXY_MODEL_NAME=my-service is ignored: there is more than one model." in said
    with pytest.raises(SettingsError, match="TFS_PROXY_MODEL_NAME=a/b can't be used: it must be letters"):
        Settings.from_env({"TFS_PROXY_MODEL_NAME": "a/b"})


def test_the_named_script_counts_where_it_is_there(tmp_path: Path) -> None:
    """A name that no file has is noted, and code/inference.py stays the script, as on AWS."""
    root = folder(tmp_path / "x", HANDLER, model=True, name="mine.py")
    assert "Script: code/mine.py defines handler" in text_on(root, SAGEMAKER_PROGRAM="mine.py")
    assert "SAGEMAKER_PROGRAM=other.py is ignored: there is no code/other.py." in text_on(
        root, SAGEMAKER_PROGRAM="other.py"
    )


DT_FLOAT = 1


def tensor(*shape: int) -> TensorInfo:
    dims = [TensorShapeProto.Dim(size=size) for size in shape]
    return TensorInfo(name="t:0", dtype=DT_FLOAT, tensor_shape=TensorShapeProto(dim=dims))  # type: ignore[arg-type]


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_model(
    folder: Path,
    signature: SignatureDef | None = None,
    *,
    tag: str = "serve",
    signatures: int = 1,
    inputs: int = 1,
) -> None:
    one = signature or SignatureDef(
        inputs={f"x{index}": tensor(-1, 4) for index in range(inputs)},
        outputs={"y": tensor(-1)},
        method_name="tensorflow/serving/predict",
    )
    graph = MetaGraphDef(
        meta_info_def=MetaGraphDef.MetaInfoDef(tags=[tag]),
        signature_def={f"serve_{index}" if index else "serving_default": one for index in range(signatures)},
    )
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(SavedModel(meta_graphs=[graph]).SerializeToString())


def report_on(root: Path, **environ: str) -> Report:
    settings = Settings.from_env(environ, Resources(2))
    return describe(look_into(root, settings), settings, environ)


def text_on(root: Path, **environ: str) -> str:
    return "\n".join(report_on(root, **environ).lines())


def test_shapes_that_are_not_told(tmp_path: Path) -> None:
    """Three dots stand for an unknown rank, whether the signature says so or has no shape at all."""
    unknown = TensorInfo(name="y:0", dtype=DT_FLOAT, tensor_shape=TensorShapeProto(unknown_rank=True))  # type: ignore[arg-type]
    bare = TensorInfo(name="x:0", dtype=DT_FLOAT)  # type: ignore[arg-type]
    inputs = {"scalar": tensor(), "x": bare}
    write_model(tmp_path / "half/1", SignatureDef(inputs=inputs, outputs={"y": unknown}))
    assert "(no method): scalar float[], x float[...] -> y float[...]" in text_on(tmp_path)


def test_a_plain_model_takes_a_few_lines(tmp_path: Path) -> None:
    """Versions, signature, default and where the script was looked for: nothing else to say."""
    write_model(tmp_path / "half/1")
    write_model(tmp_path / "half/12")
    assert list(report_on(tmp_path).lines()) == [
        f"Serving from {tmp_path}",
        "Model half, versions 1, 12 (default: the only one)",
        "  serving_default (predict): x0 float[?, 4] -> y float[?]",
        "Script: none: there is no code/inference.py",
        (
            "Processes: 2 workers (gthread) of 128 threads, one for each core; "
            "1 model server, intra-op auto, inter-op auto, no batching"
        ),
    ]


def test_what_the_machine_and_the_job_come_to_is_said(tmp_path: Path) -> None:
    """Workers, model servers, their threads and batching, whether chosen or set."""
    write_model(tmp_path / "half/1")
    text = text_on(
        tmp_path,
        SAGEMAKER_BATCH="true",
        SAGEMAKER_TFS_ENABLE_BATCHING="true",
        SAGEMAKER_TFS_INSTANCE_COUNT="2",
        SAGEMAKER_GUNICORN_WORKER_CLASS="gevent",
        SAGEMAKER_GUNICORN_WORKERS="1",
    )

    assert (
        "Processes: 1 worker (gevent), set by SAGEMAKER_GUNICORN_WORKERS; 2 model servers, intra-op 1, inter-op auto, "
        "batches of up to 8 records after 1000 µs, 2 at a time, 100000000 waiting"
    ) in text


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "Model a, version 1 (default: the first by name)"),
        ({"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "b"}, "Model b, version 1 (default: named by"),
        ({"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "None"}, "Model a, version 1 (default: the first by name"),
    ],
)
def test_why_a_model_is_the_default(tmp_path: Path, environ: dict[str, str], words: str) -> None:
    write_model(tmp_path / "a/1")
    write_model(tmp_path / "b/1")
    assert words in text_on(tmp_path, **environ)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "def input_handler(d, c): ...\ndef output_handler(r, c): ...",
            "defines input_handler and output_handler",
        ),
        ("def handler(d, c): ...", "inference.py defines handler"),
        (
            "def handler(d, c): ...\ndef input_handler(d, c): ...",
            "defines handler, which is used; its input_handler",
        ),
        ("from own import work as handler", "defines handler"),
        ("handler = print", "defines handler"),
        ("try:\n  import x\nexcept ImportError: pass\nelse:\n  def handler(d, c): ...", "defines handler"),
        ("class A:\n  def handler(self): ...", "defines none of handler"),
        ("with open('x') as file:\n  def handler(d, c): ...", "defines handler"),
    ],
)
def test_the_script_is_read_not_run(tmp_path: Path, script: str, words: str) -> None:
    write_model(tmp_path / "half/1")
    write(
        tmp_path / "code/inference.py",
        f"{script}\nraise SystemExit('was run')\n" if ":" in script else script,
    )
    assert words in text_on(tmp_path)


IGNORED: dict[str, tuple[list[str], str]] = {
    "code in the version folder": (
        ["half/1/code/inference.py"],
        "half/1/code/ is ignored: the script's folder is code/",
    ),
    "code in the model folder": (["half/code/inference.py"], "half/code/ is ignored"),
    "a script at the top": (["inference.py"], "inference.py is ignored: it must be code/inference.py"),
    "requirements at the top": (["requirements.txt"], "requirements.txt is ignored: it must be"),
    "requirements in lib": (
        ["code/inference.py", "code/lib/requirements.txt"],
        "code/lib/requirements.txt is ignored: it must be code/requirements.txt",
    ),
    "requirements beside lib": (
        ["code/inference.py", "code/requirements.txt", "code/lib/x.py"],
        "code/requirements.txt is ignored, because code/lib/ holds the packages",
    ),
    "wheels without requirements": (["code/inference.py", "code/wheels/x.whl"], "code/wheels/ is ignored"),
    "a script of another name": (
        ["code/predict.py", "code/run.py"],
        "no inference.py; it has predict.py and run.py",
    ),
    "other things": (
        ["notes.txt", "logs/a", ".hidden"],
        "Not served, because not a SavedModel: logs/, notes.txt.",
    ),
}


@pytest.mark.parametrize("case", IGNORED, ids=str)
def test_what_is_ignored_is_said_with_the_reason(tmp_path: Path, case: str) -> None:
    """Each thing that has no effect where it lies gets one note that names the right place."""
    files, words = IGNORED[case]
    write_model(tmp_path / "half/1")
    for file in files:
        write(tmp_path / file)
    notes = report_on(tmp_path).notes
    assert len(notes) == 1, notes
    assert words in notes[0]


def test_settings_that_differ_are_shown_without_secrets(tmp_path: Path) -> None:
    """Only what was changed, and never a password."""
    write_model(tmp_path / "half/1")
    text = text_on(
        tmp_path,
        SAGEMAKER_GUNICORN_WORKERS="5",
        SAGEMAKER_TFS_ENABLE_BATCHING="false",
        SAGEMAKER_TFS_EXTRA_ARGS="--api_token=abc123 --url=http://user:pw@host/",
    )
    assert "Settings: " in text
    assert "SAGEMAKER_GUNICORN_WORKERS=5" in text
    assert "BATCHING" not in text
    assert "abc123" not in text
    assert "pw@" not in text


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        (
            "SAGEMAKER_TFS_MAX_BATCHSIZE",
            "but it is not a setting: did you mean SAGEMAKER_TFS_MAX_BATCH_SIZE?",
        ),
        ("TFS_PROXY_WHATEVER_ELSE", "but it is not a setting."),
        ("SAGEMAKER_MODEL_SERVER_WORKERS", "and is not read: set SAGEMAKER_GUNICORN_WORKERS."),
        ("SAGEMAKER_TFS_VERSION", "and is not read: the image"),
        ("TFS_PROXY_REST_THREADS", "and is not read: set SAGEMAKER_TFS_EXTRA_ARGS=--rest_api_num_threads="),
    ],
)
def test_variables_that_are_not_read_are_told(tmp_path: Path, variable: str, says: str) -> None:
    """Misspelt ones with the setting that was probably meant, those of AWS's with what does the same here."""
    write_model(tmp_path / "half/1")
    assert f"{variable} is set, {says}" in text_on(tmp_path, **{variable: "4"})


def test_names_of_aws_that_nothing_reads_are_told(tmp_path: Path) -> None:
    """With what does the same here, in one line for all that have nothing; what SageMaker itself sets is no mistake."""
    write_model(tmp_path / "half/1")
    aws = {"SAGEMAKER_NUM_MODEL_SERVERS": "2", "SAGEMAKER_BATCHING_ENABLED": "true"}
    other = {"SAGEMAKER_MODEL_SERVER_VMARGS": "-Xmx1g", "SAGEMAKER_TFS_WARM": "1"}
    own = {"SAGEMAKER_REGION": "eu-west-1", "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code"}
    own |= {"SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD", "SAGEMAKER_CONTAINER_LOG_LEVEL": "20"}
    notes = [line for line in text_on(tmp_path, **aws, **other, **own).splitlines() if "Note: " in line]
    assert notes == [
        "Note: SAGEMAKER_BATCHING_ENABLED is set, and is not read: set SAGEMAKER_TFS_ENABLE_BATCHING.",
        "Note: SAGEMAKER_NUM_MODEL_SERVERS is set, and is not read: set SAGEMAKER_TFS_INSTANCE_COUNT.",
        "Note: SAGEMAKER_MODEL_SERVER_VMARGS and SAGEMAKER_TFS_WARM are set, but they are not settings.",
    ]


def test_models_that_cannot_answer_are_told(tmp_path: Path) -> None:
    """A model without the serve tag, and one without signatures."""
    write_model(tmp_path / "a/1", tag="train")
    write_model(tmp_path / "b/1", signatures=0)
    first, second = report_on(tmp_path).warning_lines()
    assert first.startswith("Warning: a version 1 has no graph tagged serve (its tags: train)")
    assert second.startswith("Warning: b version 1 has no signatures")


def test_the_text_form_is_said_to_be_unread(tmp_path: Path) -> None:
    """A saved_model.pbtxt is served without its signatures being told."""
    write(tmp_path / "half/1/saved_model.pbtxt")
    assert "saved_model.pbtxt: its signatures are not read here" in text_on(tmp_path)


def test_the_report_stays_on_a_screen(tmp_path: Path) -> None:
    """Many signatures, inputs and notes are counted, not listed; every model is named."""
    for index in range(30):
        write_model(tmp_path / f"m{index}/1", signatures=9, inputs=20)
        write(tmp_path / f"m{index}/1/code/inference.py")
    lines = list(report_on(tmp_path).lines())
    assert len(lines) < 50
    assert any(line.startswith("and 24 more models: m") for line in lines)
    assert "The default is m0 (the first by name)" in lines
    assert any("14 more" in line for line in lines)
    assert lines[-1] == "and 22 more notes"


def test_the_default_signature_is_listed_first_and_equal_ones_together(tmp_path: Path) -> None:
    """Keras exports its function as `serve`, too; of many signatures the one that is asked is not hidden."""
    one, two = (
        SignatureDef(inputs={"x": tensor(size)}, outputs={"y": tensor(size)}, method_name="a/predict")
        for size in (1, 2)
    )
    others = {f"other_{index}": SignatureDef(outputs={"y": tensor(index)}) for index in range(4)}
    signatures = {"a_first": two, "serve": one, **others, "serving_default": one}
    graph = MetaGraphDef(meta_info_def=MetaGraphDef.MetaInfoDef(tags=["serve"]), signature_def=signatures)
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/saved_model.pb").write_bytes(SavedModel(meta_graphs=[graph]).SerializeToString())

    lines = text_on(tmp_path).splitlines()[2:6]

    assert lines[0] == "  serving_default, serve (predict): x float[1] -> y float[1]"
    assert lines[3] == "  and 3 more signatures"
