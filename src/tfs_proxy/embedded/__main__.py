"""``python -m tfs_proxy.embedded FLAGS``: the same as ``tfs-proxy model-server FLAGS``."""

import sys

from tfs_proxy.embedded import main

sys.exit(main(sys.argv[1:]))
