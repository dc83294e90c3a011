"""The export process: reads a request from standard input and writes its report to a file."""

import os
import signal
import sys
import tempfile
from pathlib import Path

from msgspec import json
from msgspec.structs import replace

from tfs_proxy.tools.export.child import ExportReport, ExportRequest
from tfs_proxy.tools.export.preprocessing import Preprocessing
from tfs_proxy.values.errors import ExportError
from tfs_proxy.values.processes import signal_at_death_of


def main(report_file: Path) -> None:
    """Answers the request on standard input; a refusal is reported, too."""
    request = json.decode(sys.stdin.buffer.read(), type=ExportRequest, dec_hook=lambda kind, text: kind(text))
    try:
        report = answer(request)
    except ExportError as error:
        report = ExportReport(refusal=str(error))
    partial = report_file.with_suffix(".partial")
    partial.write_bytes(json.encode(report))
    partial.rename(report_file)


def answer(request: ExportRequest) -> ExportReport:
    """Raises ExportError."""
    if request.preprocessing is not None and request.source.is_dir():
        return _added(request, request.preprocessing)
    from tfs_proxy.tools.export import keras_files
    from tfs_proxy.tools.export.comparison import compare

    with tempfile.TemporaryDirectory(dir=request.target.parent, prefix=".export-") as folder:
        target = request.target if request.preprocessing is None else Path(folder, "model")
        report, exported = keras_files.export(replace(request, target=target))
        warnings = report.warnings
        if request.preprocessing is not None:
            tables = request.preprocessing.standardize
            tables = {report.own_names.get(name, name): table for name, table in tables.items()}
            preprocessing = replace(request.preprocessing, standardize=tables)
            warnings += _added(replace(request, source=target), preprocessing).warnings
        # Last, since TensorFlow numbers functions by what was traced before.
        warnings += compare(exported, target)
    return replace(report, warnings=warnings)


def _added(request: ExportRequest, preprocessing: Preprocessing) -> ExportReport:
    from tfs_proxy.tools.export.added_signatures import add_signatures
    from tfs_proxy.tools.export.reproducible import in_the_same_order, name_by_contents

    with in_the_same_order():
        warnings = add_signatures(request.source, request.target, preprocessing)
    name_by_contents(request.target)
    return ExportReport(warnings=tuple(warnings))


if __name__ == "__main__":
    # By itself, since a function that runs between fork and exec may swallow a signal of the parent's.
    signal_at_death_of(int(sys.argv[2]), signal.SIGKILL)()
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # skip waiting for threads that the model may have started
