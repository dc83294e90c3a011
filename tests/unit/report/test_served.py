"""What decides between models and a stage, and what the report says of either."""

from pathlib import Path

import pytest

from support.archives import SAVED_MODEL
from tfs_proxy.errors import ScriptLoadError, SettingsError
from tfs_proxy.report.served import look_into
from tfs_proxy.report.startup import describe
from tfs_proxy.resources import Resources
from tfs_proxy.script.load import load_script
from tfs_proxy.settings import Settings

STAGE = "def model_fn(model_dir): ...\ndef predict_fn(data, model): ...\n"
HANDLER = "def handler(data, context): ...\n"


def folder(root: Path, script: str, *, model: bool, name: str = "inference.py") -> Path:
    """A model folder, with a SavedModel in name only where ``model`` says so."""
    (root / "code").mkdir(parents=True)
    (root / "code" / name).write_text(script)
    if model:
        (root / "m" / "1").mkdir(parents=True)
        (root / "m" / "1" / "saved_model.pb").write_bytes(SAVED_MODEL)
    return root


def report(root: Path, **environ: str) -> str:
    """The start-up report on a folder."""
    settings = Settings.from_env(environ, Resources(3))
    return "\n".join(describe(look_into(root, settings), settings, environ).lines())


def test_without_a_saved_model_the_script_is_the_model(tmp_path: Path) -> None:
    """The report says which functions are its own; the model's own files are no leftovers."""
    root = folder(tmp_path / "x", STAGE, model=False)
    (root / "model.joblib").touch()

    assert report(root).splitlines() == [
        f"Serving from {root}",
        (
            "Script: code/inference.py is the model itself: it defines model_fn and predict_fn "
            "(and the default of input_fn and output_fn); no model server"
        ),
        "Processes: 3 workers (gthread) of 85 threads, one for each core",
    ]


def test_a_saved_model_wins_over_a_stages_functions(tmp_path: Path) -> None:
    """With a handler they are not called; without one the script can't be used, and the error names them."""
    root = folder(tmp_path / "x", STAGE + HANDLER, model=True)
    assert look_into(root, Settings.from_env({})).script_model is None
    assert "Note: model_fn and predict_fn in code/inference.py are not called" in report(root)

    alone = folder(tmp_path / "y", STAGE, model=True)
    with pytest.raises(ScriptLoadError, match="Its model_fn is for archives without a SavedModel"):
        load_script(str(alone / "code" / "inference.py"))


def test_the_only_model_can_be_given_a_name(tmp_path: Path) -> None:
    """Its folder keeps its own; with several models the name is of no use, and the report says so."""
    one = folder(tmp_path / "x", HANDLER, model=True)
    assert "Model my-service, version 1" in report(one, TFS_PROXY_MODEL_NAME="my-service")
    assert "MODEL_NAME" not in report(one, MODEL_NAME="of the script's own environment")

    (one / "n" / "1").mkdir(parents=True)
    (one / "n" / "1" / "saved_model.pb").write_bytes(SAVED_MODEL)
    said = report(one, TFS_PROXY_MODEL_NAME="my-service")
    assert "Note: TFS_PROXY_MODEL_NAME=my-service is ignored: there is more than one model." in said
    with pytest.raises(SettingsError, match="TFS_PROXY_MODEL_NAME=a/b can't be used: it must be letters"):
        Settings.from_env({"TFS_PROXY_MODEL_NAME": "a/b"})


def test_the_named_script_counts_where_it_is_there(tmp_path: Path) -> None:
    """A name that no file has is noted, and code/inference.py stays the script, as on AWS."""
    root = folder(tmp_path / "x", HANDLER, model=True, name="mine.py")
    assert "Script: code/mine.py defines handler" in report(root, SAGEMAKER_PROGRAM="mine.py")
    assert "SAGEMAKER_PROGRAM=other.py is ignored: there is no code/other.py." in report(
        root, SAGEMAKER_PROGRAM="other.py"
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SAGEMAKER_PROGRAM", "../inference.py"),
        ("SAGEMAKER_PROGRAM", "a b.py"),
        ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "csv"),
        ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "*/*, text/csv"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(variable: str, value: str) -> None:
    """No path out of code/, and one media type."""
    with pytest.raises(SettingsError, match=variable):
        Settings.from_env({variable: value})
