"""Which worker owns which socket, among processes that come and go."""

import os
import signal
from pathlib import Path

import pytest

from tfs_proxy.web.workers.worker_sockets import WorkerSockets

LISTENERS = "abc"


@pytest.mark.filterwarnings("ignore:unclosed file")  # a worker has it until its end
def test_a_socket_is_owned_until_its_worker_ends(tmp_path: Path) -> None:
    """Asking whether somebody owns a socket keeps nobody from it, and one's own is not in question."""
    path = tmp_path / "sockets"
    own = WorkerSockets(path)
    assert own.take(LISTENERS) == (["a"], ["b", "c"])
    assert own.unowned(3) == [1, 2]

    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        other = WorkerSockets(path)
        os.write(writes, b"." if other.take(LISTENERS) == (["b"], ["a", "c"]) else b"!")
        signal.pause()
    try:
        assert os.read(reads, 1) == b"."
        assert own.unowned(3) == [2]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)
    assert own.unowned(3) == [1, 2]
