"""Lays out a model file on the way, for ``tfs-proxy serve model.keras``; start-up calls it first."""

import threading
from pathlib import Path

from tfs_proxy.layout import Workspace
from tfs_proxy.packing.model_kinds import is_model_file
from tfs_proxy.settings import Settings


def laid_out(
    model: str | None, workspace: Workspace, settings: Settings, cancelled: threading.Event
) -> str | None:
    """The folder that a model file has been laid out in; ``model`` itself if it is not such a file.

    Raises what `lay_out` raises; CancelledError once another thread has set ``cancelled``.
    """
    if model is None or not is_model_file(model):
        return model
    # PERF: imported here, since most models need none of it: 20 ms and 1 MB.
    from tfs_proxy.packing.lay_out import lay_out
    from tfs_proxy.packing.options import LayoutOptions

    lay_out(LayoutOptions(Path(model)), workspace.model, settings, cancelled)
    return str(workspace.model)
