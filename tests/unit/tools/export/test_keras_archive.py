"""Broken and hostile .keras files are refused before anything in them is unpacked."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.tools.export.keras_archive import read_keras_archive
from tfs_proxy.values.errors import ExportError

GOOD: Mapping[str, bytes] = {
    "metadata.json": json.dumps({"keras_version": "3.15.1"}).encode(),
    "config.json": json.dumps({"class_name": "Sequential", "config": {"name": "m"}}).encode(),
    "model.weights.h5": b"\x89HDF\r\n\x1a\n",
}


def keras_file(path: Path, members: Mapping[str, bytes] = GOOD) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if len(content) > 10_000 else None)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        read_keras_archive(path)
    return str(caught.value)


@pytest.mark.parametrize(("version", "generation"), [("2.13.1", 2), ("3.0.0", 3), ("", 3), ("12.1", 3)])
def test_generation(tmp_path: Path, version: str, generation: int) -> None:
    """Files of Keras 2 are told from those of Keras 3 by what they say of themselves."""
    members = {**GOOD, "metadata.json": json.dumps({"keras_version": version}).encode()}

    assert read_keras_archive(keras_file(tmp_path / "m.keras", members)).generation == generation


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_truncated(tmp_path: Path, keep: float) -> None:
    path = keras_file(tmp_path / "m.keras")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])

    assert "is damaged" in (text := refusal(path))
    assert "Copy it again" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
        (b"\x89HDF\r\n\x1a\n....", "is an HDF5 file: rename it to m.h5"),
        (b"not a zip", "is not a file that Keras has written"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "m.keras").write_bytes(content)

    assert says in refusal(tmp_path / "m.keras")


@pytest.mark.parametrize("name", ["../evil", "/etc/cron.d/x", "assets/../../x", "..\\x", "c:x"])
def test_members_that_lead_out(tmp_path: Path, name: str) -> None:
    assert "leads out" in refusal(keras_file(tmp_path / "m.keras", {**GOOD, name: b"x"}))


def test_zip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents over the limit are refused by what the file declares, before they are unpacked."""
    path = keras_file(tmp_path / "m.keras", {**GOOD, "assets/zeros": bytes(50_000_000)})

    monkeypatch.setattr("tfs_proxy.tools.export.keras_archive.MAX_ARCHIVE_BYTES", 10**6)
    assert path.stat().st_size < 100_000
    assert "holds 5000" in refusal(path)


def test_ratio(tmp_path: Path) -> None:
    """Over a gigabyte that hardly any bytes stand for is refused, whatever the limit."""
    path = keras_file(tmp_path / "m.keras")
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros", "w", force_zip64=True) as member,
    ):
        for _ in range(1100):
            member.write(bytes(1_000_000))

    assert "zip bomb" in refusal(path)


@pytest.mark.parametrize("missing", sorted(GOOD))
def test_missing_members(tmp_path: Path, missing: str) -> None:
    members = {name: content for name, content in GOOD.items() if name != missing}

    assert f"no {missing}" in refusal(keras_file(tmp_path / "m.keras", members))


@pytest.mark.parametrize("config", [b"{", b"\xff", b"[" * 200_000])
def test_broken_configuration(tmp_path: Path, config: bytes) -> None:
    text = refusal(keras_file(tmp_path / "m.keras", {**GOOD, "config.json": config}))

    assert "is damaged" in text or "nested too deeply" in text


def test_huge_configuration(tmp_path: Path) -> None:
    path = keras_file(tmp_path / "m.keras", {**GOOD, "config.json": b"[" + b"1," * 40_000_000 + b"1]"})

    assert "has 80000003 bytes" in refusal(path)


def test_twice_and_links(tmp_path: Path) -> None:
    link: Any = zipfile.ZipInfo("assets/link")
    link.external_attr = 0o120777 << 16
    linked = keras_file(tmp_path / "a.keras")
    with zipfile.ZipFile(linked, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    twice = keras_file(tmp_path / "b.keras")
    with zipfile.ZipFile(twice, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("config.json", "{}")

    assert "is a symbolic link" in refusal(linked)
    assert "appears twice" in refusal(twice)
