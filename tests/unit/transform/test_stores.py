"""Local folders: which objects are found, and outputs that are written whole, once, and remembered."""

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.files import ERRORS, OUT, STATE_FOLDER, InputObject, LocalTarget, open_file
from tfs_proxy.transform.job import MANIFEST, S3_PREFIX
from tfs_proxy.transform.leftovers import objects_of, shard
from tfs_proxy.transform.run_statistics import StorageError

# A target's journal is open, and so locked, until its process ends.
pytestmark = pytest.mark.filterwarnings("ignore:.*finished-:pytest.PytestUnraisableExceptionWarning")

ITEM = InputObject("/in/sub/a", "sub/a", 1, "version 1")


@pytest.fixture(autouse=True)
def _journals_are_closed() -> Iterator[None]:
    """Collect the targets of a test, so that no other test gets the warnings about their journals."""
    yield
    gc.collect()


def no_client() -> None:
    raise AssertionError("S3 is not used")


def names_in(folder: Path, data_type: str = S3_PREFIX) -> list[str]:
    return [item.name for item in objects_of(str(folder), data_type, no_client)]  # type: ignore[arg-type]


def write_output(target: LocalTarget, item: InputObject = ITEM, text: bytes = b"text") -> None:
    sink = target.create(item, OUT, "fingerprint")
    sink.write(text)
    sink.commit()


def test_every_file_is_an_object(tmp_path: Path) -> None:
    """Hidden, empty and oddly named ones in subfolders included, sorted by name; the state of runs is not."""
    names = ["a.bin", "sub/deep/b c%20ü'\"?#.bin", "empty", "sub/.hidden", f"{STATE_FOLDER}/x", "a\udcff"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode(errors="surrogateescape"))
    assert names_in(tmp_path) == sorted(name for name in names if STATE_FOLDER not in name)
    one_file = objects_of(str(tmp_path / "a.bin"), S3_PREFIX, no_client)  # type: ignore[arg-type]
    assert [(item.name, item.size) for item in one_file] == [("a.bin", 5)]


def test_links_are_followed_once(tmp_path: Path) -> None:
    """A link to a folder above would never end."""
    (tmp_path / "in").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b").write_text("b")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "elsewhere")
    assert names_in(tmp_path / "in") == ["link/b"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Reading a named pipe might never end; an empty folder and a missing one have nothing to do."""
    with pytest.raises(SettingsError, match="has no objects"):
        names_in(tmp_path)
    with pytest.raises(SettingsError, match="There is no input"):
        names_in(tmp_path / "missing")
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
    """With the reason."""
    manifest = tmp_path / "some.manifest"
    manifest.write_text(text)
    with pytest.raises(SettingsError, match=words):
        names_in(manifest, MANIFEST)


@given(st.integers(0, 40), st.integers(1, 8))
def test_shards_are_a_partition(object_count: int, shard_count: int) -> None:
    """Every object belongs to one machine, and none has two more than another."""
    items = [InputObject(f"/{number}", f"{number}", 1, "1") for number in range(object_count)]
    shards = [shard(items, index, shard_count) for index in range(shard_count)]
    assert sorted(item.name for part in shards for item in part) == sorted(item.name for item in items)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_an_output_appears_when_it_is_committed(tmp_path: Path) -> None:
    """Until then its name is not there."""
    target = LocalTarget(tmp_path)
    sink = target.create(ITEM, OUT, "fingerprint")
    sink.write(b"te")
    sink.write(b"xt")
    assert not (tmp_path / "sub").exists()
    sink.commit()
    assert (tmp_path / "sub" / "a.out").read_bytes() == b"text"


def test_an_aborted_output_leaves_nothing(tmp_path: Path) -> None:
    """Not even out of sight."""
    sink = LocalTarget(tmp_path).create(ITEM, OUT, "fingerprint")
    sink.write(b"text")
    sink.abort()
    assert not (tmp_path / "sub").exists()
    assert list((tmp_path / STATE_FOLDER / "growing-0-of-1").iterdir()) == []


def test_finished_objects_are_remembered(tmp_path: Path) -> None:
    """By fingerprint, for all shards of a folder; error files and deleted outputs do not count."""
    first, second = LocalTarget(tmp_path, "0-of-2"), LocalTarget(tmp_path, "1-of-2")
    other = InputObject("/in/b", "b", 1, "version 7")
    failed = InputObject("/in/c", "c", 1, "1")
    write_output(first)
    write_output(second, other)
    second.create(failed, ERRORS, "fingerprint").commit()
    later = LocalTarget(tmp_path, "0-of-1")
    assert later.finished("fingerprint") == {"sub/a": "version 1", "b": "version 7"}
    assert later.finished("another") == {}
    later.remove("b", OUT)
    later.remove("never was", OUT)
    assert later.finished("fingerprint") == {"sub/a": "version 1"}


def test_half_a_line_of_a_killed_run_is_ignored(tmp_path: Path) -> None:
    """What the next run records stands on a line of its own."""
    write_output(LocalTarget(tmp_path, "1-of-2"))
    journal = tmp_path / STATE_FOLDER / "finished-0-of-2.jsonl"
    journal.write_bytes(b'{"fingerprint": "finger')
    write_output(LocalTarget(tmp_path, "0-of-2"), InputObject("/in/b", "b", 1, "1"))
    assert LocalTarget(tmp_path).finished("fingerprint") == {"sub/a": "version 1", "b": "1"}


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    """They would delete each other's files; another shard is no such run."""
    first = LocalTarget(tmp_path)
    write_output(first)
    with pytest.raises(SettingsError, match="Another run is writing"):
        LocalTarget(tmp_path).create(ITEM, OUT, "fingerprint")
    write_output(LocalTarget(tmp_path, "1-of-2"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../up", "can't be a local path"),
        ("a//b", "can't be a local path"),
        ("/a", "can't be a local path"),
        ("a\0", "can't be a local path"),
        ("a" * 252, "too long for a local file"),
    ],
)
def test_keys_that_are_no_paths_are_refused(tmp_path: Path, name: str, words: str) -> None:
    """Before any work: they come from S3, and would leave the folder."""
    with pytest.raises(SettingsError, match=words):
        LocalTarget(tmp_path).prepare([ITEM, InputObject(name, name, 1, "1")])


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Before any work, if a file stands in its way."""
    (tmp_path / "file").write_text("")
    with pytest.raises(
        SettingsError, match=r"The output .*/file/below can't be written: .*/file is not a folder"
    ):
        LocalTarget(tmp_path / "file" / "below").prepare([ITEM])


def test_a_commit_that_fails_says_where(tmp_path: Path) -> None:
    """A folder stands in the place of the output."""
    (tmp_path / "sub" / "a.out" / "x").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"sub/a.out can't be written"):
        write_output(LocalTarget(tmp_path))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """It was listed, and can't be opened any more: its object fails."""
    with pytest.raises(StorageError, match="can't be read: No such file"):
        open_file(str(tmp_path / "gone"))
