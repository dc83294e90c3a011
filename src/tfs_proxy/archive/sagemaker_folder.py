"""What an archive holds, at the path where SageMaker unpacks it: scripts open files at /opt/ml/model."""

import os
from contextlib import suppress
from pathlib import Path

from tfs_proxy.layout import SAGEMAKER_MODEL_DIR


def appear_at_sagemaker_folder(root: Path, folder: Path = SAGEMAKER_MODEL_DIR) -> None:
    """Put a link into ``folder`` to each file and folder of ``root``, if it is there and no mount.

    Links rather than files: a container that starts again finds dangling ones, which are replaced. SageMaker
    runs containers as root: nothing is done for other users.
    """
    if os.geteuid() != 0 or any(path.is_mount() for path in (folder, *folder.parents[:2])):
        return
    with suppress(OSError):  # it is not there, or a read-only root
        for entry in root.iterdir():
            link = folder / entry.name
            if link.is_symlink() and not link.exists():
                link.unlink()
            if not link.exists():
                link.symlink_to(entry)
