"""How gunicorn's master waits for the first request that needs a worker."""

import os
import signal
import socket
import threading
from pathlib import Path

from tfs_proxy.web.workers.first_demand import FirstDemand

BEYOND_THE_TESTS_LIMIT_SECONDS = 1000.0


def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    """The master sees to it at once, however long it would have waited."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        demand = FirstDemand([listener], tmp_path / "control")
        try:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert not demand.waits(BEYOND_THE_TESTS_LIMIT_SECONDS)
        finally:
            demand.close()
            signal.signal(signal.SIGUSR1, before)


def test_a_request_before_the_run_is_ready_is_not_for_a_worker(tmp_path: Path) -> None:
    """The supervisor, which has not released the workers, answers it; nothing is accepted here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        demand = FirstDemand([listener], tmp_path / "control")
        with socket.create_connection(listener.getsockname()):
            assert not demand.waits(BEYOND_THE_TESTS_LIMIT_SECONDS)
            listener.settimeout(10)
            listener.accept()[0].close()
        demand.close()
