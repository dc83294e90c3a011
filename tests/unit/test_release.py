"""A release is refused unless its commit is whole and its CHANGELOG.md names it."""

import subprocess
from pathlib import Path

import pytest

from support.loading import load_script

release = load_script("release")
CHANGES = (
    "# Changelog\n\n## 1.0.0 (TensorFlow Serving 2.20) - 2026-01-31\n\n- All of it.\n\n## 0.9.0\n\n- Less.\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone of a project that can be released as 1.0.0."""
    (tmp_path / "src" / "tfs_proxy").mkdir(parents=True)
    (tmp_path / "src" / "tfs_proxy" / "__init__.py").write_text('__version__ = "1.0.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    git(tmp_path, "init", "--quiet")
    return commit(tmp_path)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", root, *words], check=True)


def commit(root: Path) -> Path:
    git(root, "add", "--all")
    git(root, *"-c user.name=a -c user.email=a@b.c commit --quiet --allow-empty -m Go".split())
    return root


def test_a_decided_version_is_released_with_its_own_section(root: Path) -> None:
    source = release.look(root, rehearsal=False)
    assert (source.version, source.changes) == ("1.0.0", "- All of it.")
    assert source.env["SOURCE_DATE_EPOCH"] == str(source.seconds)


def test_what_is_not_committed_is_refused_even_in_a_rehearsal(root: Path) -> None:
    (root / "new.txt").write_text("")
    with pytest.raises(SystemExit, match=r"new\.txt"):
        release.look(root, rehearsal=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (CHANGES.replace("2026-01-31", "unreleased"), "unreleased'; give it a day"),
        (CHANGES.replace("1.0.0", "1.1.0"), "the package is 1.0.0, but CHANGELOG.md begins with '1.1.0"),
    ],
)
def test_a_version_that_is_not_decided_can_only_be_rehearsed(root: Path, changes: str, said: str) -> None:
    (root / "CHANGELOG.md").write_text(changes)
    commit(root)
    with pytest.raises(SystemExit, match=said):
        release.look(root, rehearsal=False)
    assert release.look(root, rehearsal=True).rehearsal


def test_a_section_without_changes_is_refused(root: Path) -> None:
    (root / "CHANGELOG.md").write_text(CHANGES.replace("- All of it.", ""))
    commit(root)
    with pytest.raises(SystemExit, match="no section"):
        release.look(root, rehearsal=True)


def test_a_version_is_released_once(root: Path) -> None:
    """The same commit can be built again."""
    git(root, "tag", "v1.0.0")
    assert release.look(root, rehearsal=False).version == "1.0.0"
    commit(root)
    with pytest.raises(SystemExit, match=r"v1\.0\.0 is another commit"):
        release.look(root, rehearsal=False)
