"""``python -m tfs_proxy.worker.router FLAGS``: the router as a process, which the supervisor starts."""

import asyncio
import sys

from tfs_proxy.worker.router.options import read_options
from tfs_proxy.worker.router.router import run

if __name__ == "__main__":
    sys.exit(asyncio.run(run(read_options(sys.argv[1:]))))
