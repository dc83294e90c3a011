"""What is prepared of an archive: flags of the model server, and labels of its versions."""

from pathlib import Path

import pytest

from support.archives import pack
from support.lite_models import lite_model
from tfs_proxy.errors import DiscoveryError, SettingsError
from tfs_proxy.layout import Workspace
from tfs_proxy.report.prepare import Prepared, check_worker_class, prepare
from tfs_proxy.settings import Settings


def prepared(folder: Path, settings: Settings) -> Prepared:
    archive = pack(folder / "m.tar.gz", {"m/2/model.tflite": lite_model()})
    (folder / "w").mkdir()
    return prepare(str(archive), settings, Workspace(folder / "w"), {})


def test_the_flag(tmp_path: Path) -> None:
    """It stands before the user's own flags, of which the last counts."""
    settings = Settings.from_env({"SAGEMAKER_TFS_EXTRA_ARGS": "--num_tflite_pools=1"})

    ready = prepared(tmp_path, settings)

    assert ready.settings.extra_args == ("--prefer_tflite_model=true", "--num_tflite_pools=1")
    assert "  serving_default (predict): x float[?, 2] -> y float[?, 2]" in ready.report
    assert ready.models[0].versions == (2,)


def test_model_servers_of_many(tmp_path: Path) -> None:
    """The flag would hold for the other archives' models, too; the error says which mode can do it."""
    settings = Settings.from_env({}).for_one_of_many("m", None)

    with pytest.raises(DiscoveryError, match="TFS_PROXY_MULTI_MODEL=process"):
        prepared(tmp_path, settings)


def test_labels_of_many(tmp_path: Path) -> None:
    """A label is refused if no version has it, but one archive of many need not have that version."""
    environ = {"SAGEMAKER_TFS_VERSION_LABELS": "stable=1", "TFS_PROXY_MULTI_MODEL": "process"}
    settings = Settings.from_env(environ)

    with pytest.raises(SettingsError, match="no model has version 1; existing versions: 2"):
        prepared(tmp_path, settings)

    (tmp_path / "one").mkdir()
    assert prepared(tmp_path / "one", settings.for_one_of_many("m", None)).models[0].versions == (2,)


def test_tornado_can_not_keep_an_adaptive_limit() -> None:
    """The error names both settings, and what to take instead; also where tornado is not installed."""
    environ = {"SAGEMAKER_GUNICORN_WORKER_CLASS": "tornado", "TFS_PROXY_ADAPTIVE_LIMIT": "50ms"}

    with pytest.raises(SettingsError, match=r"TFS_PROXY_ADAPTIVE_LIMIT .*=tornado: .* Take gthread"):
        check_worker_class(Settings.from_env(environ))


@pytest.mark.parametrize("worker_class", ["gthread", "sync", "gevent"])
def test_all_other_classes_keep_it(worker_class: str) -> None:
    """They are installed with the tests."""
    environ = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class, "TFS_PROXY_ADAPTIVE_LIMIT": "50ms"}

    check_worker_class(Settings.from_env(environ))
