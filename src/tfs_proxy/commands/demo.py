"""``tfs-proxy demo``: serves the archive that the package brings, and names a picture to send."""

import argparse
import asyncio
import logging
from pathlib import Path
from typing import Final

from tfs_proxy.commands.arguments import add_serving_arguments, exit_on_stop_signals, listen
from tfs_proxy.settings.settings import inherited_environment

log = logging.getLogger(__name__)

DESCRIPTION = """\
Serve a small model that the package brings: it reads handwritten digits in pictures.

It is served as `tfs-proxy serve` serves any archive. The last line at the start is a curl command that sends
one of the package's pictures; the address is a page that takes any other in a browser, and JSON for curl.
"""

DEMO: Final = Path(__file__).parents[1] / "demo"
ARCHIVE: Final = DEMO / "model.tar.gz"
SAMPLE: Final = DEMO / "pictures" / "3-1.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    exit_on_stop_signals()
    settings, listeners = listen(arguments.host, arguments.port)
    from tfs_proxy.run.archive_stacks import serve
    from tfs_proxy.run.host.sockets import local_url
    from tfs_proxy.run.opening import ServeRequest

    log.info(
        "A page for pictures: %s/ (more of them: %s)", local_url(listeners, settings.scheme), SAMPLE.parent
    )
    environ = inherited_environment()
    request = ServeRequest(str(ARCHIVE), arguments.model_server, environ, sample=SAMPLE)
    return asyncio.run(serve(settings, listeners, request))
