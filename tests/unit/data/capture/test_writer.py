"""The queue and the thread that write records: bounded, in order, and never in the way."""

import errno
import gzip
import os
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.capturing import body_of, captured, captured_files
from support.waiting import wait_until
from tfs_proxy.data.capture.files import FILE_SECONDS, CaptureOutcome, Folder, FolderFile, RotatingFiles
from tfs_proxy.data.capture.record import CaptureRecord, Payload
from tfs_proxy.data.capture.writer import CaptureWriter
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.values.errors import UpstreamUnavailable

NOON = 1_800_000_000.0


def record(body: bytes = b"[1]", seconds: float = NOON) -> CaptureRecord:
    return CaptureRecord(Payload("application/json", body), None, seconds)


def options(target: Path, max_bytes: int = 1_000_000) -> CaptureOptions:
    return CaptureOptions(str(target), "shop", 100.0, max_bytes)


class Stuck:
    """A target whose first file can't be made until it is let go."""

    def __init__(self, root: Path) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._folder = Folder(root)

    def create(self, path: str) -> FolderFile:
        self.reached.set()
        self.go_on.wait()
        return self._folder.create(path)


class Counted:
    """Adds up what a writer reports; ``broken`` reports fail."""

    def __init__(self) -> None:
        self.total: Counter[CaptureOutcome] = Counter()
        self.broken = False

    def __call__(self, counts: Mapping[CaptureOutcome, int]) -> None:
        if self.broken:
            raise UpstreamUnavailable("the supervisor is gone")
        self.total.update(counts)


def test_records_are_written_in_order(tmp_path: Path) -> None:
    """All of them by the end, which is when they are counted at the latest."""
    counted = Counted()
    writer = CaptureWriter(options(tmp_path), counted)
    writer.start()
    for number in range(100):
        writer.offer(record(b"%d" % number))
    writer.close()

    assert [body_of(line) for line in captured(tmp_path)] == [b"%d" % number for number in range(100)]
    assert counted.total == {CaptureOutcome.WRITTEN: 100}


def test_what_has_no_room_is_dropped(tmp_path: Path) -> None:
    counted, stuck = Counted(), Stuck(tmp_path)
    writer = CaptureWriter(options(tmp_path, 10_000), counted, stuck)
    writer.start()
    for _ in range(10):
        writer.offer(record(b"x" * 2000))
    writer.offer(record(b"x" * 20_000))
    stuck.reached.wait()
    writer.report()
    assert counted.total == {CaptureOutcome.DROPPED: 7, CaptureOutcome.TOO_LARGE: 1}
    stuck.go_on.set()
    writer.close()

    assert counted.total == {
        CaptureOutcome.WRITTEN: 3,
        CaptureOutcome.DROPPED: 7,
        CaptureOutcome.TOO_LARGE: 1,
    }
    assert len(captured(tmp_path)) == 3


def test_the_end_does_not_wait_for_a_target_that_hangs(tmp_path: Path) -> None:
    counted, stuck = Counted(), Stuck(tmp_path)
    writer = CaptureWriter(options(tmp_path), counted, stuck)
    writer.start()
    for _ in range(5):
        writer.offer(record())
    writer.close(seconds=0.05)
    assert counted.total == {CaptureOutcome.DROPPED: 5}
    writer.offer(record())
    writer.report()
    stuck.go_on.set()

    assert counted.total == {CaptureOutcome.DROPPED: 6}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_a_script_forks_leaves_the_records_alone(tmp_path: Path) -> None:
    writer = CaptureWriter(options(tmp_path), Counted())
    writer.start()
    writer.offer(record(b"1"))
    pid = os.fork()
    if pid == 0:
        writer.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    writer.offer(record(b"2"))
    writer.close()

    assert [body_of(line) for line in captured(tmp_path)] == [b"1", b"2"]


def test_counts_that_can_not_be_reported_are_kept(tmp_path: Path) -> None:
    counted = Counted()
    writer = CaptureWriter(options(tmp_path, 2000), counted)
    writer.offer(record(b"x" * 3000))
    counted.broken = True
    writer.report()
    counted.broken = False
    writer.report()

    assert counted.total == {CaptureOutcome.TOO_LARGE: 1}


def test_a_file_is_complete_when_it_is_large_or_old_and_at_the_end_of_the_hour(tmp_path: Path) -> None:
    files = RotatingFiles(Folder(tmp_path), "shop/AllTraffic", max_bytes=10)
    hour = NOON - NOON % 3600
    for seconds in (0, 0.001, 1, 2 + FILE_SECONDS, 3599, 3600):
        files.complete_before(b"1234\n", hour + seconds)
        files.append(b"1234\n", hour + seconds)
    files.close()

    found = [str(file.relative_to(tmp_path / "shop/AllTraffic"))[:23] for file in captured_files(tmp_path)]
    folder, following = "2027/01/15/08", "2027/01/15/09"
    assert found == [
        f"{folder}/00-00-000",
        f"{folder}/00-01-000",
        f"{folder}/01-02-000",
        f"{folder}/59-59-000",
        f"{following}/00-00-000",
    ]
    assert [file.read_bytes() for file in captured_files(tmp_path)] == [b"1234\n" * 2, *[b"1234\n"] * 4]


def test_an_old_file_is_complete_without_another_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 gets the last records of a burst, too."""
    monkeypatch.setattr("tfs_proxy.data.capture.writer.TICK_SECONDS", 0.01)
    completed = threading.Event()

    class Completed(FolderFile):
        def close(self) -> int:
            size = super().close()
            completed.set()
            return size

    class Completing:
        def create(self, path: str) -> Completed:
            return Completed(tmp_path / path)

    writer = CaptureWriter(options(tmp_path), Counted(), Completing())
    writer.start()
    writer.offer(record())  # of another year: its file is old at once

    wait_until(completed.is_set, 10, "the file is complete")
    written = captured(tmp_path)
    writer.close()

    assert len(written) == 1


def test_a_target_that_recovers_is_written_again(tmp_path: Path) -> None:
    """A file instead of a folder is in the way until it is gone."""
    counted = Counted()
    (tmp_path / "shop").touch()
    writer = CaptureWriter(options(tmp_path), counted)
    writer.start()
    writer.offer(record())

    def dropped() -> bool:
        writer.report()
        return counted.total[CaptureOutcome.DROPPED] == 1

    wait_until(dropped, 10, "the first is dropped")
    (tmp_path / "shop").unlink()
    writer.offer(record())
    writer.close()

    assert counted.total == {CaptureOutcome.WRITTEN: 1, CaptureOutcome.DROPPED: 1}


def test_a_packed_body_is_recorded_unpacked(tmp_path: Path) -> None:
    counted = Counted()
    writer = CaptureWriter(options(tmp_path, 10_000), counted)
    writer.start()
    for body in (gzip.compress(b"[1]"), b"[2]", gzip.compress(b" " * 20_000)):
        writer.offer(CaptureRecord(Payload("application/json", body, "gzip"), None, NOON))
    writer.close()

    assert [body_of(line) for line in captured(tmp_path)] == [b"[1]", b"[2]"]
    assert counted.total == {CaptureOutcome.WRITTEN: 2, CaptureOutcome.TOO_LARGE: 1}


def test_a_file_that_can_not_be_closed_does_not_end_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network's file system may say only then that it is full; later records are written."""
    monkeypatch.setattr("tfs_proxy.data.capture.writer.TICK_SECONDS", 0.01)
    refused, close = threading.Event(), os.close

    def refuse(descriptor: int) -> None:
        close(descriptor)
        if threading.current_thread().name == "capture" and not refused.is_set():
            refused.set()
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tfs_proxy.data.capture.files.os.close", refuse)
    counted = Counted()
    writer = CaptureWriter(options(tmp_path), counted)
    writer.start()
    writer.offer(record(b"1"))  # of another year: its file is old at once
    wait_until(refused.is_set, 10, "the file was not closed")
    writer.offer(record(b"2"))
    writer.close()

    assert counted.total == {CaptureOutcome.WRITTEN: 2}
