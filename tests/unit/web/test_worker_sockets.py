"""Which worker owns which socket, among processes that come and go."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tfs_proxy.web.workers.worker_sockets import WorkerSockets

LISTENERS = "abc"


@contextmanager
def taking(path: Path) -> Iterator[str]:
    """Another process, and the socket that it takes; killed at the end."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        sockets = WorkerSockets(path)
        os.write(writes, sockets.take(LISTENERS)[0][0].encode())
        signal.pause()
    try:
        yield os.read(reads, 1).decode()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)


@pytest.mark.filterwarnings("ignore:unclosed file")  # a worker has it until its end
def test_a_socket_is_owned_until_its_worker_ends(tmp_path: Path) -> None:
    """The kernel gives it back then, however the worker ends."""
    path = tmp_path / "sockets"
    own = WorkerSockets(path)
    assert own.take(LISTENERS) == (["a"], ["b", "c"])

    with taking(path) as second, taking(path) as third:
        assert (second, third) == ("b", "c")
    with taking(path) as again:
        assert again == "b"
    del own
