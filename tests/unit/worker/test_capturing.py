"""The files that a worker's calls are recorded in: which calls, and what bounds memory and disk."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from support.capturing import body_of, captured, captured_files
from tfs_proxy.observe.begun_requests import BegunRequests
from tfs_proxy.serving.script.deadline import DeadlineWatch
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.worker import capturing
from tfs_proxy.worker.body import BODY
from tfs_proxy.worker.capturing import PIECE_BYTES, Capture
from tfs_proxy.worker.gunicorn_workers.boundary import RequestBoundary


class Pieces:
    """An answer that may break off."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = iter(pieces)
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.closed = True


def called(
    capture: Capture,
    body: bytes | None = b"in",
    answer: Iterable[bytes] = (b"out",),
    status: str = "200 OK",
    *,
    fails: bool = False,
    **environ: Any,
) -> Any:
    """The answer of a worker to a call whose application has read ``body``."""

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if BODY in environ:
            environ[BODY] = body
        start_response(status, [("Content-Type", "text/csv")])
        if fails:
            raise ValueError("late")
        return answer

    given = {"PATH_INFO": "/invocations", "REQUEST_METHOD": "POST", "CONTENT_TYPE": "text/csv", **environ}
    with TemporaryDirectory() as folder:
        notes = BegunRequests(Path(folder) / "begun", 1)
    return RequestBoundary(app, notes, DeadlineWatch(), [capture])(given, lambda *_: None)


def send(capture: Capture, *words: Any, **more: Any) -> bytes:
    """The whole answer, which has been sent."""
    with closing(called(capture, *words, **more)) as answer:
        return b"".join(answer)


@pytest.fixture
def capture(tmp_path: Path) -> Iterator[Capture]:
    """A capture of everything into a folder."""
    capture = Capture(CaptureOptions(str(tmp_path), 100.0))
    yield capture
    capture.close()


def test_what_is_no_whole_prediction_is_not_recorded(capture: Capture, tmp_path: Path) -> None:
    """Errors, other paths, bodies that nobody has read whole, and streams that break off."""
    send(capture, status="422 Unprocessable Entity")
    send(capture, PATH_INFO="/v1/models/m:predict")
    send(capture, None)
    broken = called(capture, b"in", Pieces(b"a", ConnectionResetError()))
    with pytest.raises(ConnectionResetError):
        list(broken)
    broken.close()
    left = called(capture, b"in", pieces := Pieces(b"a", b"b"))
    left.close()
    with pytest.raises(ValueError, match="late"):
        called(capture, fails=True)
    capture.close()

    assert pieces.closed
    assert captured(tmp_path) == []
    assert (capture.dropped, capture._free_bytes) == (0, capturing.MEMORY_BYTES)


def test_each_call_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter((0.0, 0.24, 0.25, 0.99))
    monkeypatch.setattr("random.random", lambda: next(shares))
    capture = Capture(CaptureOptions(str(tmp_path), 25.0))
    for number in range(4):
        send(capture, b"%d" % number)
    capture.close()

    assert [body_of(record) for record in captured(tmp_path)] == [b"0", b"1"]


def test_memory_is_bounded_and_what_has_no_room_is_dropped(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is the same; streams share the room, which is free again when they end."""
    monkeypatch.setattr(capture, "_free_bytes", 3 * PIECE_BYTES + 10)
    first = called(capture, b"in", Pieces(b"a", b"x" * 10))
    pieces = iter(first)
    assert next(pieces) == b"a"
    assert send(capture, b"another") == b"out"
    assert [*pieces] == [b"x" * 10]
    first.close()
    assert capture.dropped == 2
    assert "2 request(s) were dropped" not in caplog.text  # the log does not repeat it
    assert "1 request(s) were dropped so far: 32 MB of them are in memory" in caplog.text
    send(capture, b"later")
    capture.close()

    assert [body_of(record) for record in captured(tmp_path)] == [b"later"]


def test_the_end_does_not_wait_for_a_folder_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(capturing, "FLUSH_SECONDS", 0.05)
    go_on = threading.Event()
    monkeypatch.setattr(Capture, "_append", lambda *_: go_on.wait())
    capture = Capture(CaptureOptions(str(tmp_path), 100.0))
    for _ in range(3):
        send(capture)
    capture.close()
    go_on.set()

    assert "3 request(s) are lost at the end" in caplog.text


def test_calls_of_many_models_have_a_folder_each(tmp_path: Path) -> None:
    """Which only a front may name: otherwise the header is a client's."""
    for of_many in (True, False):
        capture = Capture(CaptureOptions(str(tmp_path), 100.0, of_many=of_many))
        for model in ("a", "b"):
            send(capture, HTTP_X_TFS_PROXY_MODEL=model)
        capture.close()

    assert sorted(file.parent.name for file in captured_files(tmp_path)) == ["a", "b", tmp_path.name]


def test_a_file_is_complete_when_it_is_large_or_old(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "FILE_BYTES", 10)
    for seconds in (0, 1, 2, 3, 700):
        capture._append("", b"12345\n", 1_800_000_000.0 + seconds)

    assert [file.name[:20] for file in captured_files(tmp_path)] == [
        "2027-01-15T08-00-00Z",
        "2027-01-15T08-00-03Z",
        "2027-01-15T08-11-40Z",
    ]


def test_the_oldest_files_make_room_for_new_ones(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has written them; other files in the folder are left alone."""
    (tmp_path / "own.jsonl").write_bytes(b"x" * 100)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "2026-01-15T08-00-00Z-0.jsonl").write_bytes(b"x" * 20)
    (tmp_path / "2026-01-15T08-00-01Z-1.jsonl").write_bytes(b"x" * 20)
    monkeypatch.setattr(capturing, "FILE_BYTES", 10)
    monkeypatch.setattr(capturing, "FOLDER_BYTES", 40)
    capture._append("", b"12345\n", 1_800_000_000.0)

    names = [file.name for file in captured_files(tmp_path)]
    assert [name[:20] for name in names] == ["2026-01-15T08-00-01Z", "2027-01-15T08-00-00Z", "own.jsonl"]
