"""A version's folder -> its signatures, of whichever kind it is; the report and `testing` read them here."""

from pathlib import Path

from tfs_proxy.archive.discover import holds_lite_model
from tfs_proxy.archive.saved_model import SavedModelSummary, read_saved_model


def read_summary(folder: Path) -> SavedModelSummary | None:
    """Read a SavedModel or a TensorFlow Lite model; None if there is only saved_model.pbtxt.

    Raises DiscoveryError if the file can't be read or is damaged.
    """
    if holds_lite_model(folder):
        from tfs_proxy.archive.lite_model import read_lite_model

        return read_lite_model(folder)
    return read_saved_model(folder)
