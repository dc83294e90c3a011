"""Finds out the kind of model at a path; `pack` does so first, and `serve` for a file."""

import threading
from pathlib import Path

from tfs_proxy.model.discover import CHECKPOINT, OTHER_FORMATS
from tfs_proxy.model.fetch import MODEL_FILE_ENDINGS
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import DiscoveryError, NoArchive
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import printable

OTHERS = {
    "saved_model.pb": "only the graph of a SavedModel: give its folder, which has variables/ too",
    **OTHER_FORMATS,
    ".tar.gz": "an archive already: `tfs-proxy check` says what would be served from it",
    ".tgz": "an archive already: `tfs-proxy check` says what would be served from it",
    ".onnx": "an ONNX model: make a SavedModel of it first, with onnx2tf",
    ".pt": "a PyTorch model: write it as ONNX, make a SavedModel of that with onnx2tf, and pack that",
    ".pth": "a PyTorch model: write it as ONNX, make a SavedModel of that with onnx2tf, and pack that",
    ".pkl": "a pickle, which runs code when it is read: serve it by a script with model_fn",
    ".joblib": "a pickle, which runs code when it is read: serve it by a script with model_fn",
    ".ckpt": CHECKPOINT,
}
TAKEN = "MODEL must be a SavedModel, a folder of its versions, or a .keras or .h5 file."


def is_keras_file(path: Path) -> bool:
    """False for a folder, which may have SavedModels. Raises NoArchive and DiscoveryError."""
    if path.is_dir():
        return False
    shown = printable(str(path))
    if not path.is_file():
        raise NoArchive(f"There is no file or folder {shown}: {TAKEN}")
    if path.suffix.lower() not in MODEL_FILE_ENDINGS:
        ending = next((ending for ending in OTHERS if path.name.lower().endswith(ending)), None)
        what = f"is {OTHERS[ending]}" if ending else "is none of the kinds that can be packed"
        raise DiscoveryError(f"{shown} {what}. {TAKEN}")
    return True


def laid_out(
    model: str | None, workspace: Workspace, settings: Settings, cancelled: threading.Event
) -> str | None:
    """Lays out a model file and returns the folder; returns ``model`` itself if it is no such file.

    Raises what `lay_out` raises; CancelledError once another thread has set ``cancelled``.
    """
    if model is None or Path(model).suffix.lower() not in MODEL_FILE_ENDINGS or not Path(model).is_file():
        return model
    from tfs_proxy.tools.pack.lay_out import LayoutOptions, lay_out

    lay_out(LayoutOptions(Path(model)), workspace.model, settings, cancelled)
    return str(workspace.model)
