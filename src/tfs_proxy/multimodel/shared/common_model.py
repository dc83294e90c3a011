"""A model that the common workers serve: its deployment in a file, which they lock while they answer."""

import asyncio
import os
import time
from typing import Final

from tfs_proxy.deployment import Deployment
from tfs_proxy.layout import Workspace
from tfs_proxy.payload.media_types import JSON
from tfs_proxy.supervisor.host.file_locks import is_locked, is_path_locked

PAUSE_SECONDS: Final = 0.01


class CommonModel:
    """Its ``deployment`` in ``workspace``, where `web.many_models` reads it."""

    def __init__(self, workspace: Workspace, deployment: Deployment) -> None:
        self._path = workspace.deployment
        self._deployment = deployment

    def publish(self) -> None:
        """Let workers answer requests for it."""
        new = self._path.with_suffix(".new")
        new.write_bytes(self._deployment.to_json())
        new.replace(self._path)

    def is_fast(self, name: str) -> bool:
        """Whether TF Serving's own JSON may go straight to a model server that calls the model ``name``."""
        deployment = self._deployment
        return deployment.default_model == name and deployment.default_accept in {None, JSON}

    def in_use(self) -> bool:
        """Whether a worker answers a request for it now."""
        return is_path_locked(self._path)

    async def withdraw(self, seconds: float) -> None:
        """Have workers begin no more requests; returns once none is under way, after ``seconds`` at most."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        self._path.unlink()
        deadline = time.monotonic() + seconds
        try:
            # The kernel tells nobody that a lock has gone.
            while is_locked(descriptor) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            os.close(descriptor)
