"""Train on small pictures, put decoding and labels into the graph, and pack build/model.tar.gz.

The network is the one of TensorFlow's first tutorial, for 28x28 pixels and ten classes; the pictures
are scikit-learn's handwritten digits, enlarged. build/request.json gets ten of the
held-back pictures, as base64 of PNG files, and build/labels.json their labels. For `tfs-proxy pack`, which
puts the same into the graph by flags, build/ gets numerals.keras, its classes.txt, and the first picture.
"""

import base64
import io
import json
import os
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

BUILD = Path(__file__).resolve().parent / "build"
CLASS_NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SIDE = 28
SEED = 20
MIN_ACCURACY = 0.95


def main() -> None:
    """Train, pack, and write the request."""
    tf.keras.utils.set_random_seed(SEED)
    BUILD.mkdir(exist_ok=True)
    pictures, digits = load_digits(return_X_y=True)
    train_pictures, held_pictures, train_digits, held_digits = train_test_split(
        np.stack([enlarged(picture) for picture in pictures]), digits, stratify=digits, random_state=SEED
    )
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input(shape=(SIDE, SIDE), name="image"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax", name="output"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(train_pictures / 255.0, train_digits, epochs=10, verbose=0)
    accuracy = model.evaluate(held_pictures / 255.0, held_digits, verbose=0)[1]
    if accuracy < MIN_ACCURACY:
        sys.exit(f"only {accuracy:.1%} of the held-back pictures are read rightly")
    pack(model)
    model.save(BUILD / "numerals.keras")
    (BUILD / "classes.txt").write_text("\n".join(CLASS_NAMES))
    write_request(held_pictures, held_digits)
    print(f"packed build/model.tar.gz: reads {accuracy:.2f} of {len(held_digits)} held-back pictures rightly")


def enlarged(picture: Any) -> Any:
    """8x8 pixels from 0 to 16 as 28x28 from 0 to 255, ink light on dark as in Fashion-MNIST."""
    small = Image.fromarray((picture.reshape(8, 8) * 255 / 16).astype(np.uint8))
    return np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def with_words(model: Any) -> Any:
    """The signature: strings of web-safe base64 of PNG or JPEG files in, words out."""

    def base64_to_array(string: Any) -> Any:
        decoded = tf.io.decode_image(tf.io.decode_base64(string), channels=1, expand_animations=False)
        return tf.reshape(tf.image.convert_image_dtype(decoded, tf.float32), (SIDE, SIDE))

    def serving(input_images: Any) -> Any:
        images = tf.map_fn(base64_to_array, input_images, fn_output_signature=tf.float32)
        return tf.gather(CLASS_NAMES, tf.argmax(model(images), axis=1))

    return serving


def pack(model: Any) -> None:
    """Write numerals/1/... as build/model.tar.gz."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        # Not tf.saved_model.save(model): TensorFlow Serving would not find the weights of a Keras 3 model.
        saved = tf.keras.export.ExportArchive()
        saved.track(model)
        saved.add_endpoint("serve", with_words(model), [tf.TensorSpec([None], tf.string, "input_images")])
        saved.write_out(f"{folder}/numerals/1", verbose=False)
        with tarfile.open(BUILD / "model.tar.gz", "w:gz") as archive:
            archive.add(f"{folder}/numerals", "numerals")


def write_request(pictures: Any, digits: Any) -> None:
    """Write a request with the first held-back picture of each digit, and the words for them."""
    firsts = [int(np.argmax(digits == digit)) for digit in range(10)]
    chosen = np.random.default_rng(SEED).permutation(firsts)
    files = [png(pictures[index]) for index in chosen]
    (BUILD / "first.png").write_bytes(files[0])
    strings = [base64.urlsafe_b64encode(file).decode("utf-8") for file in files]
    (BUILD / "request.json").write_text(json.dumps({"instances": strings}))
    (BUILD / "labels.json").write_text(json.dumps([CLASS_NAMES[digits[index]] for index in chosen]))


def png(picture: Any) -> bytes:
    """A picture as a PNG file; tf.io.decode_base64 reads it as web-safe base64."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "PNG")
    return out.getvalue()


if __name__ == "__main__":
    main()
