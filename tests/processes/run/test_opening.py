"""Opening an archive beside the event loop: whoever cancels it need not wait for the rest of the archive."""

import asyncio
import gzip
import io
import tarfile
import threading
from pathlib import Path

import pytest

from support.waiting import wait_until
from tfs_proxy.run.opening import ServeRequest, open_archive
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace

MANY = 20_000
"""Files, which take seconds to unpack; a cancelled thread sees the next of them."""

WITHIN_SECONDS = 30.0


def unpacking_threads() -> list[threading.Thread]:
    """Those that open an archive now."""
    return [thread for thread in threading.enumerate() if thread.name == "archive"]


def test_a_cancelled_opening_unpacks_no_more(tmp_path: Path) -> None:
    """Its thread has ended when the cancelled task has, and nothing is left in the workspace."""
    workspace = Workspace(tmp_path / "run")
    workspace.root.mkdir()
    path = tmp_path / "a.tar.gz"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for number in range(MANY):
            tar.addfile(tarfile.TarInfo(f"model/1/assets/{number}"))
    path.write_bytes(gzip.compress(packed.getvalue(), 1))
    request = ServeRequest(str(path), "embedded", {})

    async def begin_and_cancel() -> None:
        opening = asyncio.create_task(open_archive(request, Settings.from_env({}), workspace))
        begun = workspace.model / "model/1/assets/0"
        await asyncio.to_thread(wait_until, begun.exists, WITHIN_SECONDS, "the first file is unpacked")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(begin_and_cancel())

    wait_until(lambda: not unpacking_threads(), WITHIN_SECONDS, "the thread has ended")
    assert list(workspace.root.iterdir()) == []
