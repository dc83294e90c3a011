"""Downloads the model at ADDRESS into FOLDER, which is there whole or not at all, by the image's Python."""

import logging
import shutil
import sys
from pathlib import Path

from tfs_proxy.model.stores import download, shown_address
from tfs_proxy.values.errors import TfsProxyError

logging.basicConfig(level=logging.INFO, format="%(message)s")
address, target = sys.argv[1], Path(sys.argv[2])
part = target.with_name(target.name + ".part")
if not target.exists():
    shutil.rmtree(part, ignore_errors=True)
    try:
        download(address, part)
    except TfsProxyError as error:
        sys.exit(str(error))
    part.rename(target)
logging.getLogger("fetch").info("%s is in %s", shown_address(address), target)
