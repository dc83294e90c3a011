"""The models of multi-model containers on this machine's disk: each version of an archive unpacked once."""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tfs_proxy.archive.s3 import objects_at
from tfs_proxy.archive.s3_client import S3_SCHEME, s3_client
from tfs_proxy.supervisor.host.waiting import in_daemon_thread
from tfs_proxy.supervisor.reloading.files import snapshot_of_file, snapshot_of_folder


class UnpackedModels:
    """The models of ``endpoint`` below ``prefix``, each in ``folder/ID/model``, which no other endpoint sees.

    An ID stands for a version of an archive: what has been unpacked is never changed, and a new archive
    under an old name is another model. ``unpacked`` opens an archive, below ``root`` unless it is a folder.
    """

    def __init__(
        self, root: Path, endpoint: str, prefix: str, unpacked: Callable[[str], Awaitable[Path]]
    ) -> None:
        self._root, self._unpacked = root, unpacked
        self.folder = root / f"models-{_digest(endpoint, prefix)}"
        self.folder.mkdir(exist_ok=True)

    async def unpack(self, address: str, mount: str | None) -> tuple[str, str]:
        """The ID of the model at ``address``, and its folder, as a container sees it at ``mount``.

        Without a ``mount`` a model that is a folder already stays where it is. Raises ArchiveError.
        """
        model_id, is_folder = await in_daemon_thread(partial(_identified, address), "archive")
        if is_folder and mount is None:
            return model_id, str(await self._unpacked(address))
        model = self.folder / model_id / "model"
        if not await asyncio.to_thread(model.exists):
            opened = await self._unpacked(address)
            await asyncio.to_thread(self._place, opened, model)
        return model_id, f"{mount or self.folder}/{model_id}/model"

    def _place(self, opened: Path, model: Path) -> None:
        """Move what has been unpacked to ``model``, or copy the user's own folder: all of it at once."""
        staged = Path(tempfile.mkdtemp(dir=self._root)) / "model"
        if opened.is_relative_to(self._root):
            opened.rename(staged)
        else:
            shutil.copytree(opened, staged)
        model.parent.mkdir(exist_ok=True)
        try:
            staged.rename(model)
        except OSError:
            if not model.exists():
                raise
            shutil.rmtree(staged)  # another instance has been quicker
        staged.parent.rmdir()


def _identified(address: str) -> tuple[str, bool]:
    """An archive's id, which says nothing of it, as on SageMaker; and that it is a folder."""
    if address.startswith(S3_SCHEME):
        looks = {item.key: item.etag for item in objects_at(address, s3_client)}
        return _digest(address, str(sorted(looks.items()))), False
    path = Path(address)
    is_folder = path.is_dir()
    files = snapshot_of_folder(path) if is_folder else snapshot_of_file(path)
    return _digest(address, str(sorted((str(file), look) for file, look in files.items()))), is_folder


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
