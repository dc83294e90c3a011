"""``python -m tfs_proxy.worker.translator OPTIONS``: the process, which the supervisor starts."""

import asyncio
import sys

from tfs_proxy.settings.worker_environment import TranslatorOptions, read
from tfs_proxy.worker.translator.server import serve_until_stopped

if __name__ == "__main__":
    sys.exit(asyncio.run(serve_until_stopped(read(TranslatorOptions, sys.argv[1]))))
