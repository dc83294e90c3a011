"""The command that installs an extra, by the records that pip and uv leave beside an installed package."""

import json
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from tfs_proxy.values.installation import how_to_install


def installed(tmp_path: Path, source: object = None, installer: str = "pip") -> PathDistribution:
    folder = tmp_path / "tfs_proxy-1.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: tfs-proxy\nVersion: 1.0.0\n")
    (folder / "INSTALLER").write_text(f"{installer}\n")
    if source is not None:
        (folder / "direct_url.json").write_text(json.dumps(source))
    return PathDistribution(folder)


def test_a_copy_from_an_index_is_named_with_its_version(tmp_path: Path) -> None:
    assert how_to_install("otel", installed(tmp_path)) == "pip install 'tfs-proxy[otel]==1.0.0'"


def test_a_copy_from_a_wheel_names_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "my files" / "tfs_proxy-1.0.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    source = {"url": wheel.as_uri(), "archive_info": {}}
    assert how_to_install("ray", installed(tmp_path, source)) == f"pip install '{wheel}[ray]'"


def test_a_wheel_that_has_gone_is_named_by_its_file(tmp_path: Path) -> None:
    source = {"url": "file:///gone/tfs_proxy-1.0.0-py3-none-any.whl", "archive_info": {}}
    command = how_to_install("ray", installed(tmp_path, source))
    assert command == "pip install 'tfs_proxy-1.0.0-py3-none-any.whl[ray]'"


@pytest.mark.parametrize(("editable", "flag"), [(True, "-e "), (False, "")])
def test_a_clone_is_named_by_its_folder(tmp_path: Path, editable: bool, flag: str) -> None:
    source = {"url": tmp_path.as_uri(), "dir_info": {"editable": editable}}
    command = how_to_install("embedded", installed(tmp_path, source, "uv"))
    assert command == f"uv pip install {flag}'{tmp_path}[embedded]'"


def test_a_repository_is_named_with_its_commit(tmp_path: Path) -> None:
    source = {"url": "https://host.example/x.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    command = how_to_install("gpu", installed(tmp_path, source))
    assert command == "pip install 'tfs-proxy[gpu] @ git+https://host.example/x.git@c0ffee'"
