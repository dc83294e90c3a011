"""Import of a script in a process of its own, where nothing that it does can hurt: `importable` asks.

As a program it imports the script and writes the result, as JSON, to the file that its argument names.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfs_proxy.values.errors import ScriptLoadError
from tfs_proxy.values.processes import signal_at_death_of

STDERR = 2
MODEL = "model"
"""Kind of a script that is the model itself."""


def importable(path: str, import_paths: Sequence[str], *, script_model: bool, seconds: float) -> None:
    """Import the script at ``path`` in a child process, as a worker would; its output goes to standard error.

    ``script_model`` says that it is the model itself, ``seconds`` how long it may take. Raises
    ScriptLoadError if it can't be imported, ends its process, or takes longer.
    """
    with tempfile.NamedTemporaryFile(prefix="tfs-proxy-import-") as result:
        ends_too = signal_at_death_of(os.getpid(), signal.SIGKILL)
        child = subprocess.Popen(
            [sys.executable, "-m", __name__, path, result.name, MODEL if script_model else "", *import_paths],
            stdin=subprocess.DEVNULL,
            stdout=STDERR,
            start_new_session=True,
            preexec_fn=ends_too,  # noqa: PLW1509 - no thread holds a lock
        )
        status: int | None = None
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:  # its children end with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        written = Path(result.name).read_bytes()
    if status is None:
        raise ScriptLoadError(f"{path} can't be imported: the import takes longer than {seconds:g} s.")
    if not written:
        end = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise ScriptLoadError(f"{path} can't be imported: the import ends its process ({end}).")
    outcome = json.loads(written)
    if outcome:
        raise ScriptLoadError(**outcome)


def main() -> None:
    """Import, write, and end without waiting for threads that the script has started."""
    script, result, kind, *import_paths = sys.argv[1:]
    from tfs_proxy.serving.script.load import load_script
    from tfs_proxy.serving.script.script_model import load_script_model

    outcome = {}
    try:
        if kind == MODEL:
            load_script_model(script, import_paths)
        else:
            load_script(script, import_paths)
    except ScriptLoadError as error:
        outcome = {"text": str(error), "report": error.report, "missing": error.missing}
    Path(result).write_text(json.dumps(outcome))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
