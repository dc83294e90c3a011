"""``python -m tfs_proxy``: the same as the command ``tfs-proxy``."""

import sys

from tfs_proxy.cli import main

sys.exit(main())
