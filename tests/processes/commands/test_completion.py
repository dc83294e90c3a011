"""The scripts that `tfs-proxy --completion` prints, in the shells themselves."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import wait_until

BASH = """
source "$SCRIPT"
COMP_WORDS=($LINE_WORDS "$LAST"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_LINE="$LINE_WORDS $LAST"; COMP_POINT=${#COMP_LINE}
_shtab_tfs_proxy
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = 'source "$SCRIPT"; complete -C "$LINE_WORDS $LAST"'
CASES = [
    ("tfs-proxy", "pac", "pack"),
    ("tfs-proxy init new", "--mo", "--model"),
    ("tfs-proxy serve", "my_mo", "my_model"),
    ("tfs-proxy check --request", "my_re", "my_request.json"),
    ("tfs-proxy --completion", "zs", "zsh"),
]


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a request and the script of each shell."""
    made = tmp_path_factory.mktemp("completed")
    (made / "my_model").mkdir()
    (made / "my_request.json").touch()
    for shell, name in {"bash": "bash", "zsh": "_tfs-proxy", "fish": "fish"}.items():
        printed = subprocess.run(
            [sys.executable, "-m", "tfs_proxy.cli", "--completion", shell], stdout=subprocess.PIPE, check=True
        )
        (made / name).write_bytes(printed.stdout)
    return made


def asked(argv: list[str], folder: Path, script: str, words: str, last: str) -> list[str]:
    """What a shell offers, without descriptions and the slashes of folders."""
    environ = {**os.environ, "SCRIPT": str(folder / script), "LINE_WORDS": words, "LAST": last}
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [line.split("\t")[0].rstrip("/ ") for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("words", "last", "wanted"), CASES)
def test_bash(folder: Path, words: str, last: str, wanted: str) -> None:
    """Commands, flags, their choices and paths are completed."""
    assert wanted in asked(["bash", "--norc", "-c", BASH], folder, "bash", words, last)


@needs("fish")
@pytest.mark.parametrize(("words", "last", "wanted"), CASES)
def test_fish(folder: Path, words: str, last: str, wanted: str) -> None:
    """The same in fish."""
    assert wanted in asked(["fish", "--no-config", "-c", FISH], folder, "fish", words, last)


@needs("zsh")
@pytest.mark.parametrize(("words", "last", "wanted"), CASES)
def test_zsh(folder: Path, words: str, last: str, wanted: str) -> None:
    """The same in zsh, which completes only at a terminal."""
    start = f"PS1='ready> '; fpath=({folder} $fpath); autoload -U compinit; compinit -u -d {folder}/dump\n"
    terminal, inner = pty.openpty()
    argv, environ = ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb"}
    zsh = subprocess.Popen(
        argv, cwd=folder, env=environ, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    )
    os.close(inner)
    try:
        seen = bytearray()
        os.write(terminal, start.encode())
        wait_until(lambda: b"\rready> " in _read(terminal, seen), 20, "zsh has a prompt")
        os.write(terminal, f"{words} {last}\t".encode())
        completed = f"{words} {wanted}".encode()
        wait_until(lambda: completed in _read(terminal, seen), 20, f"{wanted} is there", details=seen.decode)
    finally:
        zsh.kill()
        zsh.wait()
        os.close(terminal)


def _read(terminal: int, seen: bytearray) -> bytearray:
    """All that the terminal has shown so far."""
    while select.select([terminal], [], [], 0)[0]:
        seen += os.read(terminal, 65536)
    return seen
