"""``python -m tfs_proxy.worker.router OPTIONS``: the router as a process, which the supervisor starts."""

import asyncio
import sys

from tfs_proxy.settings.worker_environment import RouterOptions, read
from tfs_proxy.worker.router.router import run

if __name__ == "__main__":
    sys.exit(asyncio.run(run(read(RouterOptions, sys.argv[1]))))
