"""Makes model archives for tests: a SavedModel in name only, scripts and other files."""

import io
import shutil
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

SAVED_MODEL = b"\x08\x01\x12\x09\x0a\x07\x22\x05serve"
"""The smallest saved_model.pb: schema version 1, one graph tagged `serve`, nothing in it."""

STAND_IN = Path(__file__).parent / "stand_ins" / "model_server.py"


def pack(target: Path, files: Mapping[str, str | bytes], folders: Mapping[str, Path] | None = None) -> Path:
    """A gzip tar at ``target`` with texts by member name, and whole folders from disk."""
    with tarfile.open(target, "w:gz") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, folder in (folders or {}).items():
            archive.add(folder, name)
    return target


def stand_in_archive(target: Path, script: str | None = None, **more: str | bytes) -> Path:
    """An archive that the stand-in model server can serve: model `m`, version 1."""
    files: dict[str, str | bytes] = {"m/1/saved_model.pb": SAVED_MODEL}
    if script is not None:
        files["code/inference.py"] = script
    return pack(target, {**files, **more})


def stand_in_program(folder: Path) -> str:
    """The stand-in as a program that can be named by ``--model-server``."""
    program = folder / "tensorflow_model_server"
    program.write_text(f"#!{sys.executable}\n" + STAND_IN.read_text())
    program.chmod(0o755)
    return str(program)


def stand_in_words(folder: Path, script: str | None = None, **more: str | bytes) -> tuple[str, str, str]:
    """What `serve` is told to serve an archive of the stand-in's, both made in ``folder``."""
    archive = stand_in_archive(folder / "model.tar.gz", script, **more)
    return str(archive), "--model-server", stand_in_program(folder)


def without_nginx() -> Mapping[str, str]:
    """Settings for a run without nginx in front."""
    return {"TFS_PROXY_NGINX": "false"}


def has_nginx() -> bool:
    """Whether nginx is installed."""
    return bool(shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin"))


NEEDS_NGINX = pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")


def archive_bytes() -> bytes:
    """An archive with a SavedModel in name only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("half/1/saved_model.pb"))
    return buffer.getvalue()
