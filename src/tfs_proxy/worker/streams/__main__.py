"""``python -m tfs_proxy.worker.streams FLAGS``: the streams as a process, which the supervisor starts."""

import sys

from tfs_proxy.worker.streams.options import read_options
from tfs_proxy.worker.streams.process import main

if __name__ == "__main__":
    sys.exit(main(read_options(sys.argv[1:])))
