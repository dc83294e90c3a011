"""`tfs-proxy serve` and `check` where rights are missing: folders of other users, a root that is read-only."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import SAVED_MODEL, stand_in_program
from support.running import messages_of
from support.stack import ended

OTHER_USER = 54321
BARRED = (".", "m", "m/1", "m/1/saved_model.pb", "m/1/variables", "code", "code/inference.py")
AS_ANYBODY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Root as any user has it: without the right to read what belongs to others."""

READ_ONLY_ROOT = ["unshare", "--mount", "sh", "-c", 'mount -o remount,bind,ro / && exec "$@"', "sh"]


def launcher_of(words: list[str]) -> list[str]:
    """``words``, where they can launch anything here."""
    if shutil.which(words[0]) is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip(f"{words[0]} can't be used here")
    return words


@pytest.fixture
def anybody() -> list[str]:
    """A launcher for a process that reads only what its user may read."""
    return launcher_of(AS_ANYBODY) if os.geteuid() == 0 else []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A model and a script, of another user if we may give them away; readable again at the end."""
    files = {
        "m/1/saved_model.pb": SAVED_MODEL,
        "m/1/variables/variables.index": b"",
        "code/inference.py": b"def handler(data, context):\n    return 'x'\n",
    }
    root = tmp_path / "served"
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, OTHER_USER, OTHER_USER)
    yield root
    for path in (root, *root.rglob("*")):
        path.chmod(0o700)


def hidden(path: Path) -> str:
    """Take all rights away but the owner's; mode as ls shows it."""
    mode = (0o700 if path.is_dir() else 0o600) if os.geteuid() == 0 else 0
    path.chmod(mode)
    return f"{mode:03o}"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("check", name) for name in BARRED),
        ("serve", "m/1/variables"),
        ("serve", "code"),
    ],
)
def test_what_may_not_be_read_is_one_sentence(
    folder: Path, anybody: list[str], tmp_path: Path, name: str, command: str
) -> None:
    """It names the path that bars the way, its owner and mode, our user and the remedy; the status is 2."""
    mode = hidden(folder / name)
    words = (
        [str(folder), "--model-server", stand_in_program(tmp_path)] if command == "serve" else [str(folder)]
    )
    assert_told(end_of(command, words, anybody), folder / name, mode)


@pytest.mark.parametrize("named", ["model.tar.gz", ""], ids=["archive", "its folder"])
def test_an_archive_that_may_not_be_read_is_one_sentence(
    folder: Path, anybody: list[str], tmp_path: Path, named: str
) -> None:
    """As for a folder, whether the archive is named or found in a folder that is."""
    archive = folder / "model.tar.gz"
    archive.touch()
    if os.geteuid() == 0:
        os.chown(archive, OTHER_USER, OTHER_USER)
    mode = hidden(archive)
    words = [str(folder / named), "--model-server", stand_in_program(tmp_path)]
    assert_told(end_of("serve", words, anybody), archive, mode)


def assert_told(run: tuple[int, str], barrier: Path, mode: str) -> None:
    """The status is 2, and the last line names what may not be read, by whom, and the remedy."""
    status, said = run
    last = messages_of(said)[-1]
    assert status == 2, said
    assert "Traceback" not in said
    assert last.startswith(f"tfs-proxy: {barrier} can't be read by user ")
    assert f"and has mode {mode}" in last
    assert f"chmod -R a+rX {barrier}" in last


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_read_only_root_without_a_tmpfs_names_the_remedy(folder: Path, command: str) -> None:
    """No folder can be written: mount one, or name one."""
    launcher = launcher_of(READ_ONLY_ROOT)
    status, said = end_of(command, [str(folder)], launcher, TFS_PROXY_HOME="")

    assert status == 2, said
    assert messages_of(said)[-1].startswith("tfs-proxy: No folder can be written to")
    assert "--tmpfs /tmp" in said
    assert "TFS_PROXY_HOME" in said
    assert "None" not in said


def end_of(command: str, words: list[str], launcher: list[str], **env: str) -> tuple[int, str]:
    """Exit status of a run that ends by itself, and all that it said."""
    if command == "serve":
        return ended(*words, launcher=launcher, env=env)
    done = subprocess.run(
        [*launcher, sys.executable, "-m", "tfs_proxy.cli", command, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )
    return done.returncode, done.stdout + done.stderr
