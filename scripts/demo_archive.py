"""Trains the model of `tfs-proxy demo` and writes src/tfs_proxy/demo: its archive, and twenty pictures.

The pictures are held-back ones of scikit-learn's handwritten digits. The graph decodes them, so no script is
needed. `make demo-archive` runs it.
"""

import gzip
import io
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

DEMO = Path(__file__).parents[1] / "src" / "tfs_proxy" / "demo"
PICTURES = DEMO / "pictures"
SIDE = 8
SHOWN_SIDE = 64
SEED = 20
EPOCHS = 40
MIN_ACCURACY = 0.97
PICTURES_A_DIGIT = 2


def main() -> None:
    """Train, and write the archive and the pictures."""
    tf.keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    images, digits = load_digits(return_X_y=True)
    pixels = images.reshape(-1, SIDE, SIDE, 1).astype("float32") / 16
    train_pixels, held_pixels, train_digits, held_digits = train_test_split(
        pixels, digits, test_size=0.2, stratify=digits, random_state=SEED
    )
    model = tf.keras.Sequential(
        [
            tf.keras.Input((SIDE, SIDE, 1)),
            tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(train_pixels, train_digits, batch_size=64, epochs=EPOCHS, verbose=0)
    accuracy = model.evaluate(held_pixels, held_digits, verbose=0)[1]
    if accuracy < MIN_ACCURACY:
        sys.exit(f"The model reads only {accuracy:.1%} of the held-back pictures.")
    PICTURES.mkdir(parents=True, exist_ok=True)
    write_pictures(held_pixels, held_digits)
    pack(model)
    size = sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file())
    print(f"reads {accuracy:.1%} of {len(held_digits)} held-back pictures rightly; {DEMO} has {size} bytes")


def write_pictures(pixels: Any, digits: Any) -> None:
    """Write held-back pictures, named DIGIT-NUMBER, by turns as PNG and JPEG files of 64x64 pixels."""
    shutil.rmtree(PICTURES)
    PICTURES.mkdir()
    for digit in range(10):
        for number, index in enumerate(np.flatnonzero(digits == digit)[:PICTURES_A_DIGIT]):
            small = Image.fromarray((pixels[index, :, :, 0] * 255).astype("uint8"))
            picture = small.resize((SHOWN_SIDE, SHOWN_SIDE), Image.Resampling.BICUBIC)
            ending = ("png", "jpg")[number % 2]
            picture.save(PICTURES / f"{digit}-{number + 1}.{ending}")


def reader(model: Any) -> Any:
    """The signature: bytes of PNG, JPEG, GIF or BMP files in; the digit, and how certain it is, out."""

    def pixels_of(picture: Any) -> Any:
        decoded = tf.io.decode_image(picture, channels=1, expand_animations=False)
        small = tf.image.resize(decoded, (SIDE, SIDE), method=tf.image.ResizeMethod.AREA)
        return tf.reshape(small / 255, (SIDE, SIDE, 1))

    def read(picture_bytes: Any) -> Any:
        probabilities = model(tf.map_fn(pixels_of, picture_bytes, fn_output_signature=tf.float32))
        return {
            "digit": tf.argmax(probabilities, axis=1),
            "confidence": tf.reduce_max(probabilities, axis=1),
        }

    return read


def pack(model: Any) -> None:
    """Write digits/1 as model.tar.gz, with the same bytes for the same model."""
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.keras.export.ExportArchive()
        saved.track(model)
        saved.add_endpoint("serve", reader(model), [tf.TensorSpec([None], tf.string, "picture_bytes")])
        saved.write_out(f"{folder}/digits/1", verbose=False)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(f"{folder}/digits", "digits", filter=without_owner)
    (DEMO / "model.tar.gz").write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member without the owner and the time of the machine that packs."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
