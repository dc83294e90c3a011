"""A TF-Serving-compatible model server on the tensorflow package: ``tfs-proxy model-server FLAGS``."""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the server with tensorflow_model_server's flags until a signal; returns the exit status."""
    from tfs_proxy.embedded import serve

    return serve.main(argv)
