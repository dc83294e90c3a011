"""Names of models for archives below a folder or a prefix, and what may be loaded from there."""

import re
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from support.transform_command import S3_SETTINGS
from tfs_proxy.run.many_models.admission import bytes_on_disk
from tfs_proxy.run.many_models.archives import (
    LocalArchives,
    ModelFolder,
    model_folder,
    model_name,
)
from tfs_proxy.values.errors import ArchiveError, BadInput, SettingsError
from tfs_proxy.values.names import LOADED_MODEL, is_model_name

BUCKET = "models"


def write(root: Path, *paths: str) -> None:
    """Make files; what is in them does not matter here."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"archive")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "team/.tar.gz",
        "team//a.tar.gz",
        "team/../../a.tar.gz",
        "./a.tar.gz",
        "a\n.tar.gz",
        "a.tar.gz/",
    ],
)
def test_what_cannot_be_the_path_of_a_model_is_the_clients_mistake(path: str) -> None:
    with pytest.raises(BadInput, match=re.escape(".")) as refused:
        model_name(path)

    assert "\n" not in str(refused.value)


PATHS = st.from_regex(r"[A-Za-z0-9_-]{1,6}(/[A-Za-z0-9._-]{1,6}){0,3}\.tar\.gz", fullmatch=True)


@given(st.one_of(PATHS, st.text(max_size=80)))
def test_every_name_can_be_one(path: str) -> None:
    """Any text is refused, or has a name that the API takes, from which the path can be read but for --."""
    try:
        name = model_name(path)
    except BadInput:
        return

    assert is_model_name(name, LOADED_MODEL)
    assert f"{name}.tar.gz" == path.replace("/", "--")


def test_every_archive_below_a_folder_has_a_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.tar.gz",
        "team/a.tar.gz",
        "team/eu/b.tar.gz",
        "c.tgz",
        "README",
        ".d.tar.gz",
        ".git/e.tar.gz",
    )
    write(tmp_path, "no good.tar.gz")
    (tmp_path / "folder.tar.gz").mkdir()
    folder = model_folder(str(tmp_path))
    listing = folder.check()

    assert dict(listing.paths) == {
        "a": ["a.tar.gz"],
        "team--a": ["team/a.tar.gz"],
        "team--eu--b": ["team/eu/b.tar.gz"],
    }
    assert list(listing.unnamed) == ["no good.tar.gz"]
    assert folder.url_of("team--a") == str(tmp_path / "team/a.tar.gz")
    assert folder.url_of("team") is None


def test_archives_come_and_go_during_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that two have is refused from the next look, until one is gone; other models are not concerned."""
    write(tmp_path, "team/a.tar.gz")
    folder = ModelFolder(LocalArchives(tmp_path))
    folder.check()
    write(tmp_path, "team--a.tar.gz", "b.tar.gz")

    assert folder.url_of("b") is None
    monkeypatch.setattr(LocalArchives, "stale_seconds", 0.0)
    assert folder.url_of("b") == str(tmp_path / "b.tar.gz")
    with pytest.raises(BadInput, match="would both be the model team--a"):
        folder.url_of("team--a")
    (tmp_path / "team/a.tar.gz").unlink()
    assert folder.url_of("team--a") == str(tmp_path / "team--a.tar.gz")


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    root, outside = tmp_path / "models", tmp_path / "outside"
    write(root, "a.tar.gz")
    write(outside, "secret.tar.gz", "deep/b.tar.gz")
    (root / "inside.tar.gz").symlink_to(root / "a.tar.gz")
    (root / "leak.tar.gz").symlink_to(outside / "secret.tar.gz")
    (root / "folder").symlink_to(outside / "deep")
    (root / "loop.tar.gz").symlink_to(root / "loop.tar.gz")
    (tmp_path / "alias").symlink_to(root)
    folder = model_folder(str(tmp_path / "alias"))

    assert list(folder.check().paths) == ["a", "inside"]
    assert folder.require_below(str(root / "a.tar.gz")) == str(root / "a.tar.gz")
    assert folder.require_below(str(tmp_path / "alias/inside.tar.gz")) == str(root / "a.tar.gz")
    assert folder.require_below("team/../a.tar.gz") == str(root / "a.tar.gz")
    for url in ("leak.tar.gz", "folder/b.tar.gz", "loop.tar.gz", "../outside/secret.tar.gz", ".", "", "a\0b"):
        with pytest.raises(BadInput, match="only what is below that folder can be"):
            folder.require_below(url)
    for url in (
        str(outside / "secret.tar.gz"),
        str(root),
        f"{root}-other/a",
        "/etc/passwd",
        "s3://bucket/a.tar.gz",
    ):
        with pytest.raises(BadInput, match="only what is below that folder can be"):
            folder.require_below(url)


def test_a_place_that_is_no_folder_says_so(tmp_path: Path) -> None:
    """At the start, and where it is removed later."""
    with pytest.raises(SettingsError, match="it is not a folder"):
        model_folder(str(tmp_path / "missing"))
    with pytest.raises(ArchiveError, match="is no address of a store"):
        model_folder("s3://").check()
    (tmp_path / "models").mkdir()
    folder = model_folder(str(tmp_path / "models"))
    (tmp_path / "models").rmdir()
    with pytest.raises(ArchiveError, match="can't be read"):
        folder.url_of("a")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket with archives below and beside a prefix."""
    for variable, value in S3_SETTINGS.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        put("shop/a.tar.gz", "shop/team/b.tar.gz", "shop/", "shop/x.txt", "shop-2/c.tar.gz", "d.tar.gz")
        yield BUCKET


def put(*keys: str) -> None:
    for key in keys:
        boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"archive")


@pytest.mark.usefixtures("bucket")
def test_every_archive_below_a_prefix_has_a_name() -> None:
    for address in ("s3://models/shop", "s3://models/shop/"):
        folder = model_folder(address)
        assert dict(folder.check().paths) == {"a": ["a.tar.gz"], "team--b": ["team/b.tar.gz"]}
        assert folder.url_of("team--b") == "s3://models/shop/team/b.tar.gz"
        assert folder.require_below("s3://models/shop/team/b.tar.gz") == "s3://models/shop/team/b.tar.gz"
    assert len(model_folder("s3://models").check().paths) == 4


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    "url",
    [
        "s3://models/shop-2/c.tar.gz",
        "s3://models/shop/",
        "s3://models/shop/../d.tar.gz",
        "/etc/passwd",
        "a.tar.gz",
    ],
)
def test_what_is_beside_a_prefix_is_not_loaded(url: str) -> None:
    """A key is a text, but it becomes a path once it is downloaded."""
    with pytest.raises(BadInput, match="--multi-model s3://models/shop/ only"):
        model_folder("s3://models/shop").require_below(url)


def test_sizes_are_those_of_files(tmp_path: Path) -> None:
    write(tmp_path, "model/1/saved_model.pb", "model/1/variables/variables.index", "a.tar.gz")
    (tmp_path / "model/1/link").symlink_to(tmp_path / "model/1/saved_model.pb")
    (tmp_path / "model/1/broken").symlink_to(tmp_path / "gone")

    assert bytes_on_disk(tmp_path / "model") == 2 * len(b"archive")
    assert bytes_on_disk(tmp_path / "a.tar.gz") == len(b"archive")
    assert bytes_on_disk(tmp_path / "missing") == 0
