"""``tfs-proxy model-server``: the embedded model server."""

import argparse

DESCRIPTION = "The embedded model server: flags and API of tensorflow_model_server."
USAGE = "[FLAG ...]"


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.embedded import main

    return main(arguments.words)
