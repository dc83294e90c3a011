"""Memory that several processes share out among large requests."""

import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tfs_proxy.values.errors import Overloaded
from tfs_proxy.worker.memory_ledger import MemoryLedger

HOLD = (
    "import sys; from pathlib import Path; from tfs_proxy.worker.memory_ledger import MemoryLedger\n"
    "MemoryLedger(Path(sys.argv[1]), 100).reserve(int(sys.argv[2])); print('held', flush=True); input()"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@contextmanager
def another_process_holds(path: Path, size: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has ``size`` bytes of 100."""
    command = [sys.executable, "-c", HOLD, str(path), str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_what_others_hold_is_missing_until_they_are_dead(path: Path) -> None:
    """A request that finds too little left is refused after its wait, in a sentence."""
    ledger = MemoryLedger(path, 100, wait_seconds=0)
    with another_process_holds(path, 60) as process:
        ledger.reserve(40)
        with pytest.raises(Overloaded, match=r"TFS_PROXY_MAX_DECODED_TOTAL_MB"):
            ledger.reserve(1)
        process.kill()
        process.wait()
        ledger.reserve(60)


def test_a_request_waits_for_another_to_end(path: Path) -> None:
    ledger = MemoryLedger(path, 100, wait_seconds=60)
    ledger.reserve(100)
    waiting = threading.Thread(target=ledger.reserve, args=(100,))
    waiting.start()

    ledger.release(100)
    waiting.join(60)

    assert not waiting.is_alive()
    assert path.stat().st_size == 16


def test_a_table_of_nonsense_reserves_nothing(path: Path) -> None:
    """Process ids that no process can have hold no memory."""
    path.write_bytes(struct.pack("=6q", 2**62, 100, -1, 100, 0, 100))
    ledger = MemoryLedger(path, 100, wait_seconds=0)

    ledger.reserve(100)

    with pytest.raises(Overloaded):
        ledger.reserve(1)
