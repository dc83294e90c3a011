"""Unpacking archives that nobody vouches for: what is refused, what is kept, what is left on disk."""

import filecmp
import gzip
import io
import random
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfs_proxy.model import extract as extract_module
from tfs_proxy.model.extract import extract
from tfs_proxy.values.errors import ArchiveError

Entry = tuple[tarfile.TarInfo, bytes]


def file(name: str, contents: bytes = b"x", mode: int = 0o644) -> Entry:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(contents), mode
    return info, contents


def special(name: str, kind: bytes, link: str = "") -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o755
    return info, b""


def folder(name: str) -> Entry:
    return special(name, tarfile.DIRTYPE)


def symlink(name: str, target: str) -> Entry:
    return special(name, tarfile.SYMTYPE, target)


def hardlink(name: str, target: str) -> Entry:
    return special(name, tarfile.LNKTYPE, target)


def tar_bytes(entries: Iterable[Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, contents in entries:
            tar.addfile(info, io.BytesIO(contents))
    return buffer.getvalue()


def packed(parent: Path, tar: bytes | bytearray) -> Path:
    return written(parent, gzip.compress(tar, 1))


def written(parent: Path, contents: bytes | bytearray) -> Path:
    path = parent / "model.tar.gz"
    path.write_bytes(contents)
    return path


def archive_of(parent: Path, *entries: Entry) -> Path:
    return packed(parent, tar_bytes(entries))


def refused(archive: Path) -> str:
    """The sentence with which an archive is refused; nothing may be left behind."""
    target = archive.parent / "out"
    with pytest.raises(ArchiveError) as caught:
        extract(archive, target)
    assert list(archive.parent.iterdir()) == [archive]
    assert caught.value.exit_status == 2
    return str(caught.value)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar_is_read(tmp_path: Path, form: int) -> None:
    """The ustar, GNU and pax forms all unpack, long names included, gzipped or not."""
    name = "a" * 90 + "/" + "b" * 90
    tar = tar_bytes([file(name, b"1" * 1000), file("c", b"2")], form)
    extract(written(tmp_path, tar), tmp_path / "out")
    assert (tmp_path / "out" / name).read_bytes() == b"1" * 1000
    assert (tmp_path / "out/c").read_bytes() == b"2"


def test_links_that_stay_inside_are_kept(tmp_path: Path) -> None:
    """Symbolic and hard links within the archive arrive as links."""
    archive = archive_of(
        tmp_path,
        file("m/1/w", b"w"),
        symlink("m/2", "1"),
        hardlink("h", "m/1/w"),
        symlink("m/up", "../m/2/w"),
    )
    extract(archive, tmp_path / "out")
    assert (tmp_path / "out/m/2").is_symlink()
    assert (tmp_path / "out/m/up").read_bytes() == b"w"
    assert (tmp_path / "out/h").stat().st_nlink == 2


def test_modes_are_made_harmless(tmp_path: Path) -> None:
    """No file keeps set-user-id or world-writable bits; each can be read, each folder entered."""
    closed = folder("d")
    closed[0].mode = 0
    archive = archive_of(tmp_path, closed, file("d/s", b"x", 0o6777), file("d/secret", b"x", 0o000))
    extract(archive, tmp_path / "out")
    modes = {
        name: stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) for name in ("d", "d/s", "d/secret")
    }
    assert modes["d/s"] & 0o7022 == 0
    assert modes["d/secret"] & 0o400
    assert modes["d"] & 0o700 == 0o700


BAD_MEMBERS: dict[str, tuple[list[Entry], str]] = {
    "absolute": ([file("/etc/passwd")], "absolute path"),
    "parent": ([file("a/../../b")], "'..'"),
    "absolute symlink": ([symlink("a", "/etc")], "absolute"),
    "leaving symlink": ([symlink("a/b", "../../etc")], "leads out"),
    "leaving by a chain": ([symlink("a", "b/.."), symlink("b", "c/.."), symlink("c", "..")], "leads out"),
    "chain through a folder": ([folder("d/e"), symlink("s", "d/e"), symlink("t", "s/../../..")], "leads out"),
    "circle": ([symlink("a", "b"), symlink("b", "a")], "leads back to itself"),
    "empty target": ([symlink("a", "")], "usable target"),
    "through a symlink": ([folder("d"), symlink("a", "d"), file("a/b")], "below a"),
    "symlink over a folder": ([file("a/b"), symlink("a", "b")], "twice"),
    "folder over a symlink": ([folder("d"), symlink("a", "d"), folder("a")], "twice"),
    "file over a symlink": ([symlink("a", "b"), file("a")], "twice"),
    "absolute hard link": ([hardlink("a", "/etc/passwd")], "leaves the folder"),
    "leaving hard link": ([hardlink("a", "../x")], "leaves the folder"),
    "hard link to nothing": ([hardlink("a", "b"), file("b")], "not a file before it"),
    "hard link to a symlink": ([symlink("b", "c"), hardlink("a", "b")], "not a file before it"),
    "hard link to a folder": ([folder("b"), hardlink("a", "b")], "not a file before it"),
    "device": ([special("dev", tarfile.CHRTYPE)], "device file"),
    "block device": ([special("dev", tarfile.BLKTYPE)], "device file"),
    "fifo": ([special("pipe", tarfile.FIFOTYPE)], "named pipe"),
    "unknown kind": ([special("odd", b"V")], "unknown kind"),
    "duplicate after normalising": ([file("a/b"), file("./a//./b")], "twice"),
    "duplicate folder": ([folder("a"), folder("./a/")], "twice"),
    "file where a folder is": ([file("a/b"), file("a")], "twice"),
    "folder where a file is": ([file("a"), file("a/b")], "below a, which is a file"),
    "file named as the root": ([file("./.")], "twice"),
    "long part": ([file("a/" + "n" * 256)], "255 bytes"),
    "long path": ([file("/".join(["n" * 200] * 20))], "2048 bytes"),
    "deep path": ([file("/".join(["n"] * 200))], "100 folders"),
}


@pytest.mark.parametrize("case", BAD_MEMBERS, ids=str)
def test_a_bad_member_is_refused_and_named(tmp_path: Path, case: str) -> None:
    """Each kind of hostile member ends in one sentence that names the member, and no file is left."""
    entries, words = BAD_MEMBERS[case]
    text = refused(archive_of(tmp_path, file("good/first"), *entries))
    assert words in text
    assert "\n" not in text
    assert any(info.name[:150] in text for info, _ in entries)


def test_control_characters_of_a_name_stay_out_of_the_log(tmp_path: Path) -> None:
    """A name with an escape sequence is shown escaped."""
    text = refused(archive_of(tmp_path, file("../\x1b[2J\n")))
    assert "\x1b" not in text
    assert "\\x1b[2J\\n" in text


def test_the_byte_limit_counts_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the limit is fine; one byte more is refused before it is written."""
    archive = archive_of(tmp_path, file("a", b"1" * 60), file("b", b"2" * 40))
    monkeypatch.setattr(extract_module, "MAX_ARCHIVE_BYTES", 99)
    assert "member b" in refused(archive)
    monkeypatch.setattr(extract_module, "MAX_ARCHIVE_BYTES", 100)
    extract(archive, tmp_path / "out")


def test_the_member_limit_counts_folders_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member after the last allowed one is named."""
    archive = archive_of(tmp_path, folder("a"), file("a/b"), file("a/c"))
    monkeypatch.setattr(extract_module, "MOST_MEMBERS", 2)
    assert "a/c" in refused(archive)


def test_the_ratio_counts_only_past_its_free_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero weights compress 1000:1 and are fine while small; a bomb is not."""
    archive = archive_of(tmp_path, file("zeros", bytes(2_000_000)), file("more", bytes(2_000_000)))
    extract(archive, tmp_path / "out")
    (tmp_path / "out").rename(tmp_path.parent / "kept")
    monkeypatch.setattr(extract_module, "RATIO_FREE_BYTES", 3_000_000)
    assert "member more" in refused(archive)


def test_a_sparse_bomb_is_refused_by_its_unpacked_size(tmp_path: Path) -> None:
    """Holes count as the bytes that they pretend to be."""
    odd, contents = file("holes", b"0\n" + bytes(510))
    odd.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "2000000000"}
    text = refused(archive_of(tmp_path, (odd, contents)))
    assert "times its packed size" in text


@pytest.mark.parametrize(
    "sparse_map", [b"2\n3\n2\n1\n1\n", b"2\n0\n9\n3\n9\n", b"1\n11\n3\n", b"x\n", b"999999999\n"]
)
def test_a_sparse_map_that_lies_is_refused(tmp_path: Path, sparse_map: bytes) -> None:
    """Extents out of order, past the end, or more than is stored are damage."""
    odd, contents = file("holes", sparse_map.ljust(512, b"\0") + b"abc")
    odd.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "12"}
    refused(archive_of(tmp_path, (odd, contents)))


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:50_000] + bytes([data[50_000] ^ 0xFF]) + data[50_001:],
        lambda data: data[:-8] + b"\0" * 8,
        lambda data: data + b"garbage",
    ],
    ids=["cut", "flipped", "without checksum", "continued"],
)
def test_damaged_gzip_is_refused(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    """A cut, flipped, wrongly summed or continued gzip file is never served in part."""
    tar = tar_bytes([file("a", random.Random(3).randbytes(100_000)), file("b")])
    assert "can't be unpacked" in refused(written(tmp_path, harm(gzip.compress(tar))))


@pytest.mark.parametrize("length", [0, 1, 100, 512, 1024, 1300, 2048])
def test_a_cut_plain_tar_is_refused(tmp_path: Path, length: int) -> None:
    """A plain tar has no check sum at its end, so the end mark is asked for."""
    tar = tar_bytes([file("a", b"1" * 600), file("b", b"2" * 600)], tarfile.USTAR_FORMAT)
    refused(written(tmp_path, tar[:length]))


@pytest.mark.parametrize(
    "contents", [b"PK\x03\x04" + bytes(2000), b"no archive at all" * 99, gzip.compress(b"hi" * 999, mtime=0)]
)
def test_what_is_no_tar_is_refused(tmp_path: Path, contents: bytes) -> None:
    """A zip file, a text, a gzipped text: each is refused as not being a tar archive."""
    refusal = refused(written(tmp_path, contents))
    assert "not a tar archive" in refusal
    assert "pack MODEL" in refusal


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    """One flipped byte in a later header must not silently drop the files after it."""
    tar = bytearray(tar_bytes([file("a"), file("b"), file("c")], tarfile.USTAR_FORMAT))
    tar[1024] ^= 0xFF
    assert "bad checksum" in refused(packed(tmp_path, tar))


def test_endless_names_do_not_fill_memory(tmp_path: Path) -> None:
    """A long-name header of 40 MB is refused by its size, not read."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 40_000_000
    tar = info.tobuf(tarfile.GNU_FORMAT) + bytes(40_000_000)
    assert "over 16777216 bytes" in refused(packed(tmp_path, tar))


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle of unpacking cleans up too."""
    archive = archive_of(tmp_path, file("a", b"1" * 100))

    def interrupt(_read: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(archive, tmp_path / "out", interrupt)
    assert list(tmp_path.iterdir()) == [archive]


def test_an_existing_target_is_left_alone(tmp_path: Path) -> None:
    """Unpacking never mixes with what is there already."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(ArchiveError):
        extract(archive_of(tmp_path, file("a")), tmp_path / "out")
    assert (tmp_path / "out/mine").exists()


PARTS = st.sampled_from(["a", "b", "c", ".", "..", "", "é", "n" * 255])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
ENTRIES = st.lists(
    st.one_of(
        st.builds(file, NAMES, st.binary(max_size=600), st.integers(0, 0o7777)),
        st.builds(folder, NAMES),
        st.builds(symlink, NAMES, NAMES),
        st.builds(hardlink, NAMES, NAMES),
    ),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(entries=ENTRIES, form=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_whatever_the_members_nothing_lands_outside(entries: list[Entry], form: int) -> None:
    """Either one ArchiveError and an empty parent, or everything truly below the target."""
    with tempfile.TemporaryDirectory() as scratch:
        archive = packed(Path(scratch), tar_bytes(entries, form))
        target = Path(scratch, "deep", "out")
        target.parent.mkdir()
        try:
            extract(archive, target)
        except ArchiveError:
            assert not list(target.parent.iterdir())
            return
        assert list(target.parent.iterdir()) == [target]
        for path in target.rglob("*"):
            assert path.resolve().is_relative_to(target.resolve())


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 4095), byte=st.integers(0, 255), zipped=st.booleans())
def test_whatever_byte_is_changed_only_archive_errors_come_out(place: int, byte: int, zipped: bool) -> None:
    """A reader of untrusted bytes raises one kind of error only."""
    tar = bytearray(tar_bytes([file("a", b"1" * 700), symlink("s", "a"), folder("é" * 80)]))
    tar[place % len(tar)] = byte
    with tempfile.TemporaryDirectory() as scratch:
        archive = (packed if zipped else written)(Path(scratch), tar)
        try:
            extract(archive, Path(scratch, "out"))
        except ArchiveError:
            assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs a tar program")
@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_sparse_archives_of_the_tar_program_are_read(tmp_path: Path, form: str) -> None:
    """GNU tar's own sparse members, with more extents than one header holds, come out as they went in."""
    source = tmp_path / "in"
    source.mkdir()
    with (source / "weights").open("wb") as weights:
        for index in range(40):
            weights.seek(index * 100_000)
            weights.write(b"%d" % index * 3000)
        weights.truncate(5_000_000)
    argv = f"tar --create --gzip --sparse --format={form} --file {tmp_path / 'm.tgz'} weights".split()
    if subprocess.run(argv, cwd=source, check=False, capture_output=True).returncode:
        pytest.skip("this tar program has no sparse members")
    extract(tmp_path / "m.tgz", tmp_path / "out")
    assert filecmp.cmp(source / "weights", tmp_path / "out/weights", shallow=False)


def test_a_gzip_of_several_members_is_one_archive(tmp_path: Path) -> None:
    """Parallel gzip programs write several gzip members in a row, with padding after them at times."""
    tar = tar_bytes([file("a", b"1" * 5000), file("b", b"2")])
    path = written(tmp_path, gzip.compress(tar[:700]) + gzip.compress(tar[700:]) + bytes(100))
    extract(path, tmp_path / "out")
    assert (tmp_path / "out/a").read_bytes() == b"1" * 5000


def test_a_declared_size_that_lies_is_refused(tmp_path: Path) -> None:
    """More bytes than the header says can't be a member, fewer mean a cut archive."""
    tar = bytearray(tar_bytes([file("a", b"1" * 2000)], tarfile.USTAR_FORMAT))
    for size in (b"00000000001", b"77777777777"):
        tar[124:135] = size
        tar[148:156] = b"%06o\0 " % sum(bytes(tar[:148]) + b" " * 8 + bytes(tar[156:512]))
        refused(packed(tmp_path, tar))


def test_an_empty_archive_is_refused(tmp_path: Path) -> None:
    assert "has no files" in refused(archive_of(tmp_path))
