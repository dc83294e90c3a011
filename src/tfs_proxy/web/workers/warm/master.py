"""gunicorn whose master imports what its workers need before it forks them: run as a module (gthread only).

If that can't be done for this model, or fails, the process becomes the plain `gunicorn_master`, whose workers
import by themselves: only they report what is wrong.
"""

import os
import re
import sys
from pathlib import Path
from typing import Final

from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.upstream.instances import fetch_deployment
from tfs_proxy.web.workers import gunicorn_master
from tfs_proxy.web.workers.warm.preload import REQUESTS, SCRIPT, WORKER, BroughtByModel, names_in, preload
from tfs_proxy.worker_environment import worker_workspace

_IMPORTS_REQUESTS: Final = re.compile(rb"^\s*(?:import|from)\s[^#\n]*\brequests\b", re.MULTILINE)
"""A line of a script; if it is one of a text, an import that nobody needs does no harm."""
PLAIN: Final = "tfs_proxy.web.workers.gunicorn_master"


def main() -> None:
    """Import, then run gunicorn until it ends."""
    try:
        deployment = fetch_deployment(worker_workspace().control_socket)
        preload([*WORKER, *_for_script(deployment.script)], names_brought(deployment))
    except (UpstreamUnavailable, UpstreamTimeout):
        pass  # so say the workers
    except (Exception, SystemExit, BroughtByModel):  # noqa: BLE001 - a worker will report it
        os.execv(sys.executable, [sys.executable, "-m", PLAIN, *sys.argv[1:]])  # noqa: S606 - needs no shell
    gunicorn_master.main()


def _for_script(script: str | None) -> tuple[str, ...]:
    """What workers with this script import besides. Raises OSError if it can't be read."""
    if script is None:
        return ()
    return (*SCRIPT, *REQUESTS) if _IMPORTS_REQUESTS.search(Path(script).read_bytes()) else SCRIPT


def names_brought(deployment: Deployment) -> set[str]:
    """The top-level modules of the folders that came with the model, or were installed for it.

    Raises OSError if one can't be read.
    """
    installed = [Path(path) for path in sys.path if Path(path).is_relative_to(worker_workspace().packages)]
    folders = [*installed, *map(Path, deployment.import_paths)]
    return names_in(folder for folder in folders if folder.is_dir())


if __name__ == "__main__":
    main()
