"""Writes 41.tar.gz and 42.tar.gz into FOLDER, for scripts/try-cluster: x float[?] -> y = x + that number."""

import sys
import tarfile
import tempfile
from pathlib import Path

import tensorflow as tf


def write(target: Path, number: int) -> None:
    """Write the archive of a model that adds ``number``."""
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.float32, "x")
    serve = tf.function(lambda x: {"y": x + number}, input_signature=[spec])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, f"{folder}/1", signatures=serve)
        with tarfile.open(target, "w:gz") as archive:
            archive.add(folder, "plus")


if __name__ == "__main__":
    for each in (41, 42):
        write(Path(sys.argv[1], f"{each}.tar.gz"), each)
