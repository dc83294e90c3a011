"""The images' entry point: which command a container's words, variables and folders mean."""

from pathlib import Path

import pytest

from support.archives import SAVED_MODEL
from tfs_proxy.commands.container import command_of, holds_served_models
from tfs_proxy.model.report.serving_flags import ServingFlags, as_the_image
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError

COMMANDS = ("serve", "check", "model-server")


def saved_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(SAVED_MODEL)
    return folder


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["check", "m.tar.gz"], ["check", "m.tar.gz"]),
        (["--enable_batching"], ["tensorflow-serving", "--enable_batching"]),
        (["-h"], ["-h"]),
        (["bash"], None),
        ([""], None),
        (["./serve"], None),
    ],
)
def test_the_first_word_decides(words: list[str], meant: list[str] | None) -> None:
    """Our commands, flags of the model server, and everything else, which is a program."""
    assert command_of(words, COMMANDS) == meant


@pytest.mark.parametrize("variable", ["MODEL_NAME", "MODEL_BASE_PATH"])
def test_a_variable_of_tensorflow_serving_decides_without_words(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """An empty one counts as unset."""
    monkeypatch.setenv(variable, "")
    assert command_of([], COMMANDS) == ["serve"]
    monkeypatch.setenv(variable, "x")
    assert command_of([], COMMANDS) == ["tensorflow-serving"]


def test_folders_decide_where_no_variable_does(tmp_path: Path) -> None:
    """A model in /models, and nothing in /opt/ml/model, nor an address of an archive."""
    models, archives = tmp_path / "models", tmp_path / "ml"

    def stands_in(**environ: str) -> bool:
        return holds_served_models(Settings.from_env(environ), models, archives)

    assert not stands_in()
    saved_model(models / "1")  # the version's folder lies in a model's, not in /models itself
    assert not stands_in()
    saved_model(models / "m" / "7")
    archives.mkdir()
    assert stands_in()
    assert not stands_in(SAGEMAKER_MODEL_URI="s3://bucket/model.tar.gz")
    (archives / "model.tar.gz").touch()
    assert not stands_in()


def served(*words: str, **environ: str) -> tuple[str, str]:
    """Name and base path of the model that is served."""
    flags = as_the_image(words, Settings.from_env(environ))
    return flags.value("model_name"), flags.value("model_base_path")


def test_the_only_model_needs_no_name(tmp_path: Path) -> None:
    base = str(tmp_path)
    saved_model(tmp_path / "b" / "1")
    assert served(MODEL_BASE_PATH=base) == ("b", f"{base}/b")

    saved_model(tmp_path / "a" / "1")
    with pytest.raises(SettingsError, match="several models, a, b: name the one to serve in MODEL_NAME"):
        served(MODEL_BASE_PATH=base)
    assert served("--model_config_file=/x", MODEL_BASE_PATH=base)[0] == "model"

    saved_model(tmp_path / "model" / "1")
    assert served(MODEL_BASE_PATH=base) == ("model", f"{base}/model")


@pytest.mark.parametrize(
    ("words", "value", "port"),
    [
        ((), "", 0),
        (("--port=1", "--port=2"), "2", 2),
        (("--port", "3"), "3", 3),
        (("--port=70000",), "70000", 0),
        (("--ports=4",), "", 0),
    ],
)
def test_a_flag_is_read_as_the_model_server_does(words: tuple[str, ...], value: str, port: int) -> None:
    """The last of a name counts; what is no port is left for the model server to refuse."""
    flags = ServingFlags(words)

    assert (flags.value("port"), flags.port("port")) == (value, port)


def test_the_model_is_the_images_unless_flags_say_otherwise(tmp_path: Path) -> None:
    """MODEL_NAME below MODEL_BASE_PATH, `model` without; later flags win."""
    base = str(tmp_path)

    assert served(MODEL_BASE_PATH=base) == ("model", f"{base}/model")
    assert served(MODEL_BASE_PATH="s3://b/m", MODEL_NAME="x") == ("x", "s3://b/m/x")
    assert served("--model_name=y", MODEL_NAME="x") == ("y", "/models/x")
    assert served(MODEL_NAME="x", TFS_PROXY_MODEL_NAME="z") == ("z", "/models/x")
