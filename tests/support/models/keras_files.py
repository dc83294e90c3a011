"""Writes the files that trained models come in: run as a script, once, ``keras_files.py ROOT``.

Each answers rows of three numbers `x` with `x @ [[1, 0], [0, 1], [1, 1]] + [0.5, -0.5]`; those that must not be
packed are below ROOT/refused.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

DONE = ".complete"
KERNEL = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
BIAS = [0.5, -0.5]


def source_key() -> str:
    """A name for what this file writes: it changes when the file does."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def linear(keras: Any) -> Any:
    """The model, of either generation of Keras."""
    model = keras.Sequential(
        [keras.layers.Input((3,), name="x"), keras.layers.Dense(2, name="y"), keras.layers.Dropout(0.5)]
    )
    model.layers[0].set_weights([_array(KERNEL), _array(BIAS)])
    return model


def write_all(root: Path) -> None:
    """Write every file below ``root``."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras  # type: ignore[import-untyped]
    import tf_keras

    root.mkdir(parents=True)
    model = linear(keras)
    model.save(root / "keras3.keras")
    model.save(root / "keras3_hdf5.h5")
    model.export(root / "saved" / "7", verbose=False)
    older = linear(tf_keras)
    older.save(str(root / "keras2.keras"))
    older.save(str(root / "keras2_hdf5.h5"))
    listed = [keras.Input((2,), name="zoom"), keras.Input((1,), name="age")]
    weighed = keras.layers.Dense(1, use_bias=False, name="total")
    listed_model = keras.Model(listed, weighed(keras.layers.Concatenate()(listed)))
    weighed.set_weights([_array([[1.0], [10.0], [100.0]])])
    listed_model.save(root / "listed.keras")
    words = keras.Input((), dtype="string", name="word")
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
    keras.Model(words, lookup(words)).save(root / "words.keras")
    _named(keras, root)
    _picture(root / "picture" / "1")
    _refused(keras, root / "refused")
    (root / DONE).touch()


def _named(keras: Any, root: Path) -> None:
    """Models whose inputs and outputs have names of each kind; the last one's layer can't have its."""
    age, income = keras.Input((1,), name="x1"), keras.Input((1,), name="x2")
    both = keras.layers.Concatenate()([age, income])
    risk, group = keras.layers.Dense(1, name="left")(both), keras.layers.Dense(3, name="right")(both)
    keras.Model({"age": age, "income (USD)": income}, {"risk": risk, "of-group": group}).save(
        root / "dicts.keras"
    )
    keras.Model([age, income], [risk, group]).save(root / "lists.keras")
    keras.Model({"a b": age, "a-b": income}, risk).save(root / "colliding.keras")
    keras.Model(age, keras.layers.Dense(1, name="out put")(age)).save(root / "spaced.keras")


def _picture(folder: Path) -> None:
    """A SavedModel that takes encoded images, and answers their mean."""
    import tensorflow as tf

    def mean(image: Any) -> dict[str, Any]:
        decoded = tf.map_fn(
            lambda text: tf.reduce_mean(tf.cast(tf.io.decode_png(text, 3), tf.float32)), image, tf.float32
        )
        return {"mean": decoded}

    module = tf.Module()
    module.mean = tf.function(mean, input_signature=[tf.TensorSpec([None], tf.string, name="image")])
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.mean})


def _refused(keras: Any, root: Path) -> None:
    """Files that Keras itself has written, and that run code, or are not whole models."""
    root.mkdir()

    @keras.saving.register_keras_serializable(package="mine")
    class Twice(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return 2 * x

    with_code = keras.Sequential(
        [keras.Input((3,), name="x"), keras.layers.Lambda(lambda x: 2 * x, name="code")]
    )
    with_class = keras.Sequential([keras.Input((3,), name="x"), Twice()])
    for ending in (".keras", ".h5"):
        with_code.save(root / f"lambda{ending}")
        with_class.save(root / f"class{ending}")
    keras.Sequential([keras.layers.Dense(2)]).save(root / "unbuilt.keras")


def _array(values: Any) -> Any:
    import numpy as np

    return np.asarray(values, np.float32)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
