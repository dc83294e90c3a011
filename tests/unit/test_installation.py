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


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'tfs-proxy[gpu]==1.0.0'"),
        (
            {"url": "file:///gone/tfs_proxy-1.0.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'tfs_proxy-1.0.0-py3-none-any.whl[gpu]'",
        ),
        (
            {"url": "https://host.example/x.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "pip install 'tfs-proxy[gpu] @ git+https://host.example/x.git@c0ffee'",
        ),
    ],
)
def test_a_copy_names_where_it_came_from(tmp_path: Path, source: object, command: str) -> None:
    """An index and its version, a wheel that has gone by its file, a repository and its commit."""
    assert how_to_install("gpu", installed(tmp_path, source)) == command


def test_a_copy_from_a_wheel_names_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "my files" / "tfs_proxy-1.0.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    source = {"url": wheel.as_uri(), "archive_info": {}}
    assert how_to_install("ray", installed(tmp_path, source)) == f"pip install '{wheel}[ray]'"


@pytest.mark.parametrize(("editable", "flag"), [(True, "-e "), (False, "")])
def test_a_clone_is_named_by_its_folder(tmp_path: Path, editable: bool, flag: str) -> None:
    source = {"url": tmp_path.as_uri(), "dir_info": {"editable": editable}}
    command = how_to_install("embedded", installed(tmp_path, source, "uv"))
    assert command == f"uv pip install {flag}'{tmp_path}[embedded]'"
