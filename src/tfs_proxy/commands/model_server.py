"""``tfs-proxy model-server``: the embedded model server."""

import argparse

DESCRIPTION = "The embedded model server: flags and API of tensorflow_model_server."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes all words: the flags are TensorFlow Serving's, and the model server parses them."""
    parser.add_argument("words", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.embedded import main

    return main(arguments.words)
