"""Local folders: which objects are found, and what is no folder or manifest of them."""

import json
import os
from pathlib import Path

import pytest

from tfs_proxy.transform.job import MANIFEST, S3_PREFIX
from tfs_proxy.transform.leftovers import objects_of
from tfs_proxy.values.errors import SettingsError


def names_in(folder: Path, data_type: str = S3_PREFIX) -> list[str]:
    return [item.name for item in objects_of(str(folder), data_type)]


def test_links_are_followed_once(tmp_path: Path) -> None:
    """A link to a folder above would never end."""
    (tmp_path / "in").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b").write_text("b")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "elsewhere")
    assert names_in(tmp_path / "in") == ["link/b"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Reading a named pipe might never end; an empty folder has nothing to do."""
    with pytest.raises(SettingsError, match="has no objects"):
        names_in(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match=r"pipe is not a regular file"):
        names_in(tmp_path)


def test_a_manifest_lists_the_objects(tmp_path: Path) -> None:
    """Only those, below a local prefix too."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    manifest = tmp_path / "some.manifest"
    manifest.write_text(json.dumps([{"prefix": f"{tmp_path}/"}, "c", "a"]))
    assert names_in(manifest, MANIFEST) == ["a", "c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "must be a list of a prefix and keys"),
        ('["a"]', "must begin with"),
        ('[{"prefix": 1}]', "must begin with"),
        ('[{"prefix": "/in/"}, 5]', "lists 5, which is not a key"),
        ('[{"prefix": "/nonexistent/"}, "a"]', "/nonexistent/a can't be read"),
        ('[{"prefix": "/nonexistent/"}]', "has no objects"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str, words: str) -> None:
    manifest = tmp_path / "some.manifest"
    manifest.write_text(text)
    with pytest.raises(SettingsError, match=words):
        names_in(manifest, MANIFEST)
