"""A TF-Serving-compatible model server on the tensorflow package: ``tfs-proxy model-server FLAGS``."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from tfs_proxy.values.installation import how_to_install

_NEEDED = ("tensorflow", "uvicorn", "httptools", "uvloop", "simdjson")


def main(argv: Sequence[str]) -> int:
    """Run the server with tensorflow_model_server's flags until a signal; returns the exit status."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        print(  # noqa: T201
            f"The embedded model server needs {', '.join(missing)}: {how_to_install('embedded')}, "
            "or put tensorflow_model_server on PATH.",
            file=sys.stderr,
        )
        return 2
    from tfs_proxy.embedded import server as serve

    return serve.main(argv)
