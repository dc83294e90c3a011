"""Train the second stage on what the first made of the training data, and pack build/regressor.tar.gz.

A linear regression in TensorFlow, solved at once: build/features/*.out has the label first in each row.
"""

import os
import tarfile
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"


class Regressor(tf.Module):
    """A weight for each feature, and a bias."""

    def __init__(self, features, labels):
        super().__init__()
        rows = tf.concat([features, tf.ones_like(features[:, :1])], axis=1)
        # The features of the sex add up to one, as the bias is: a little ridge picks one of all solutions.
        solution = tf.linalg.lstsq(rows, labels[:, tf.newaxis], l2_regularizer=1e-3)[:, 0]
        self.weights = tf.Variable(tf.cast(solution[:-1], tf.float32))
        self.bias = tf.Variable(tf.cast(solution[-1], tf.float32))
        spec = tf.TensorSpec([None, len(solution) - 1], tf.float32, name="features")
        self.signature = tf.function(self.score, input_signature=[spec]).get_concrete_function()

    def score(self, features):
        return {"score": tf.linalg.matvec(features, self.weights) + self.bias}


def main():
    files = sorted((BUILD / "features").glob("*.out"))
    rows = np.concatenate([np.loadtxt(name, delimiter=",", ndmin=2) for name in files])
    features, labels = tf.constant(rows[:, 1:]), tf.constant(rows[:, 0])
    regressor = Regressor(features, labels)
    scores = regressor.score(tf.cast(features, tf.float32))["score"].numpy()
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        tf.saved_model.save(regressor, f"{folder}/1", signatures=regressor.signature)
        with tarfile.open(BUILD / "regressor.tar.gz", "w:gz") as archive:
            archive.add(f"{folder}/1", "regressor/1")
            archive.add(HERE / "inference.py", "code/inference.py")
    print(
        f"{len(rows)} rows of {rows.shape[1] - 1} features; off by {np.abs(scores - rows[:, 0]).mean():.2f} rings"
    )


if __name__ == "__main__":
    main()
