"""Train a small convolutional network on scikit-learn's handwritten digits and pack it as build/model.tar.gz.

Write held-back images as PNG and JPEG files to build/images/, and their labels to build/labels.json. Does nothing when the archive is newer than this file and inference.py.
"""

import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
ARCHIVE = BUILD / "model.tar.gz"
IMAGES = BUILD / "images"
LABELS = BUILD / "labels.json"
SOURCES = (HERE / "train.py", HERE / "inference.py")

SEED = 20
EPOCHS = 30
EPOCHS_PER_LINE = 5
IMAGES_PER_DIGIT = 2
JPEG_ENLARGEMENT = 8
MIN_ACCURACY = 0.97


def main() -> None:
    """Train, pack and say how good the model is, unless that has been done."""
    if is_fresh():
        print(f"{ARCHIVE} is up to date")
        return
    started = time.monotonic()
    BUILD.mkdir(exist_ok=True)
    say("loading scikit-learn and TensorFlow")
    pixels, digits, held_pixels, held_digits = split_digits()
    model, accuracy = train(pixels, digits, held_pixels, held_digits)
    if accuracy < MIN_ACCURACY:
        sys.exit(
            f"The model reads only {accuracy:.1%} of the held-back images; {MIN_ACCURACY:.0%} is wanted."
        )
    say("packing the model and held-back images")
    write_images(held_pixels, held_digits)
    pack(model)
    print(f"trained on {len(digits)} images in {time.monotonic() - started:.0f} s", end="; ")
    print(f"reads {accuracy:.1%} of {len(held_digits)} held-back ones rightly; packed {ARCHIVE}")


def say(what: str) -> None:
    """Print a line of progress at once, even if the output is not a terminal."""
    print(f"{what} ...", flush=True)


def is_fresh() -> bool:
    """Whether the archive is newer than its sources and the images are there."""
    if not (ARCHIVE.exists() and LABELS.exists() and IMAGES.is_dir()):
        return False
    newest_source = max(path.stat().st_mtime for path in SOURCES)
    return ARCHIVE.stat().st_mtime > newest_source


def split_digits() -> tuple[Any, Any, Any, Any]:
    """Images as float32 of shape (n, 8, 8, 1) from 0 to 1 and their digits: to train on, and held back."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, digits = load_digits(return_X_y=True)
    pixels = images.reshape(-1, 8, 8, 1).astype("float32") / 16
    train_pixels, held_pixels, train_digits, held_digits = train_test_split(
        pixels, digits, test_size=0.2, stratify=digits, random_state=SEED
    )
    return train_pixels, train_digits, held_pixels, held_digits


def train(pixels: Any, digits: Any, held_pixels: Any, held_digits: Any) -> tuple[Any, float]:
    """A trained model, and the share of held-back images that it reads rightly."""
    import tensorflow as tf
    from tensorflow import keras

    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1), name="image"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    progress = keras.callbacks.LambdaCallback(on_epoch_begin=say_epoch)
    model.fit(pixels, digits, batch_size=64, epochs=EPOCHS, verbose=0, callbacks=[progress])
    return model, model.evaluate(held_pixels, held_digits, verbose=0)[1]


def say_epoch(epoch: int, _logs: Any) -> None:
    """Say at every fifth epoch, counted from 0, how far the training is."""
    if epoch % EPOCHS_PER_LINE == 0:
        say(f"training, epoch {epoch + 1} of {EPOCHS}")


def write_images(pixels: Any, digits: Any) -> None:
    """Write held-back images of every digit, by turns PNG at 8x8 and JPEG enlarged, and their labels."""
    from PIL import Image

    shutil.rmtree(IMAGES, ignore_errors=True)
    IMAGES.mkdir()
    labels: dict[str, int] = {}
    for index in first_of_each(digits):
        picture = Image.fromarray((pixels[index, :, :, 0] * 255).astype("uint8"))
        suffix = ("png", "jpg")[len(labels) % 2]
        if suffix == "jpg":
            side = 8 * JPEG_ENLARGEMENT
            picture = picture.resize((side, side), Image.Resampling.BICUBIC)
        name = f"held-back-{index:03}.{suffix}"
        picture.save(IMAGES / name)
        labels[name] = int(digits[index])
    LABELS.write_text(json.dumps(labels, indent=1) + "\n")


def first_of_each(digits: Any) -> Iterable[int]:
    """Indexes of the first IMAGES_PER_DIGIT images of 0, of 1, and so on to 9."""
    by_digit = [[i for i, digit in enumerate(digits) if digit == wanted] for wanted in range(10)]
    return [index for indexes in by_digit for index in indexes[:IMAGES_PER_DIGIT]]


def pack(model: Any) -> None:
    """Write digits/1/... and code/inference.py as model.tar.gz, in place only when it is whole."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        model.export(f"{folder}/digits/1", verbose=False)
        packed = Path(folder) / ARCHIVE.name
        with tarfile.open(packed, "w:gz") as archive:
            archive.add(f"{folder}/digits", "digits")
            archive.add(HERE / "inference.py", "code/inference.py")
        packed.replace(ARCHIVE)


if __name__ == "__main__":
    main()
