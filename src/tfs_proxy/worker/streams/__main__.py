"""``python -m tfs_proxy.worker.streams OPTIONS``: the streams as a process, which the supervisor starts."""

import sys

from tfs_proxy.settings.worker_environment import StreamOptions, read
from tfs_proxy.worker.streams.process import main

if __name__ == "__main__":
    sys.exit(main(read(StreamOptions, sys.argv[1])))
