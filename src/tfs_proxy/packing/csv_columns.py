"""Records in a model in which order CSV without a header has its inputs."""

from pathlib import Path

from tfs_proxy.archive.discover import discover
from tfs_proxy.archive.summary import read_summary
from tfs_proxy.errors import SettingsError
from tfs_proxy.layout import CSV_COLUMNS_FILE
from tfs_proxy.names import printable
from tfs_proxy.signature import DEFAULT_SIGNATURE


def record_columns(root: Path, columns: str, *, required: bool) -> None:
    """Write the order into each version below ``root`` that has these inputs, and several.

    Raises SettingsError for a version that has others, if the order is ``required``.
    """
    names = {name.strip() for name in columns.split(",")}
    for folder in (folder for model in discover(root) for folder in model.versions.values()):
        summary = read_summary(folder)
        signature = summary.signatures.get(DEFAULT_SIGNATURE) if summary else None
        inputs = set(signature.inputs) if signature else set()
        if inputs != names and required:
            raise SettingsError(
                f"--csv-columns {printable(columns)} is not an order of the model's inputs, which are "
                f"{printable(', '.join(sorted(inputs)) or 'not known')}."
            )
        if inputs == names and len(names) > 1:
            file = folder / CSV_COLUMNS_FILE
            file.parent.mkdir(exist_ok=True)
            file.unlink(missing_ok=True)  # it may be a second name of the file that was packed
            file.write_text(columns + "\n")
