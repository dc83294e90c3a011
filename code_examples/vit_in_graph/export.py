"""Export a Vision Transformer of Hugging Face that reads base64 of JPEG files and answers labels.

What comes before and after the network is part of the graph, so clients send pictures and get words:
build/model.tar.gz has the SavedModel, build/request.json a request to try. build/vit has the network alone and
build/labels.txt its words: `tfs-proxy pack` puts the same into the graph by flags. A small network is made from a
configuration and taught, in seconds, to tell parts of two photographs; `--checkpoint NAME` takes a
pretrained one instead, as `google/vit-base-patch16-224`, if the hub can be reached.
"""

import argparse
import base64
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # transformers' TensorFlow classes are for Keras 2
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from PIL import Image
from transformers import TFViTForImageClassification, ViTConfig, ViTImageProcessor

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
LABELS = {0: "temple", 1: "flower"}
PHOTOGRAPHS = ("china.jpg", "flower.jpg")
CONCRETE_INPUT = "pixel_values"
CHANNELS = 3
SEED = 7
PARTS = 256
EPOCHS = 10


def main() -> None:
    """Make or load the network, export it, and write a request."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--checkpoint", help="a pretrained ViT of the hub, or a folder with one")
    checkpoint = flags.parse_args().checkpoint
    BUILD.mkdir(exist_ok=True)
    copy_photographs()
    model, processor = pretrained(checkpoint) if checkpoint else taught()
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        tf.saved_model.save(
            model, f"{folder}/vit/1", signatures={"serving_default": exporter(model, processor)}
        )
        with tarfile.open(BUILD / "model.tar.gz", "w:gz") as archive:
            archive.add(f"{folder}/vit", "vit")
    tf.saved_model.save(model, str(BUILD / "vit"), signatures=network_of(model, processor))
    (BUILD / "labels.txt").write_text("\n".join(labels_of(model)))
    strings = [urlsafe_base64(BUILD / name) for name in PHOTOGRAPHS]
    (BUILD / "request.json").write_text(
        json.dumps({"signature_name": "serving_default", "instances": strings})
    )
    print(f"packed build/model.tar.gz: {model.num_parameters()} parameters, labels {labels_of(model)}")


def pretrained(checkpoint: str) -> tuple[Any, Any]:
    """The network and its preprocessing, from the hub or a folder."""
    model = TFViTForImageClassification.from_pretrained(checkpoint)
    return model, ViTImageProcessor.from_pretrained(checkpoint)


def taught() -> tuple[Any, Any]:
    """A small network, taught to tell parts of the two photographs."""
    tf.keras.utils.set_random_seed(SEED)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    model = TFViTForImageClassification(
        ViTConfig(
            image_size=processor.size["height"],
            patch_size=8,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            id2label=LABELS,
        )
    )
    pixels, labels = parts(processor)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(1e-3), loss)
    model.fit(pixels, labels, batch_size=32, epochs=EPOCHS, verbose=0)
    return model, processor


def parts(processor: Any) -> tuple[Any, Any]:
    """Random square parts of both photographs, as the network takes them, and which one each is of."""
    chance = np.random.default_rng(SEED)
    pictures, labels = [], []
    for label, name in enumerate(PHOTOGRAPHS):
        photograph = Image.open(BUILD / name)
        for _ in range(PARTS):
            side = int(chance.integers(200, min(photograph.size)))
            left = int(chance.integers(0, photograph.width - side + 1))
            top = int(chance.integers(0, photograph.height - side + 1))
            part = photograph.resize((64, 64), box=(left, top, left + side, top + side))
            pictures.append(preprocess_pixels(tf.constant(np.asarray(part)), processor))
            labels.append(label)
    order = chance.permutation(len(labels))
    return np.stack(pictures)[order], np.array(labels)[order]


def preprocess_pixels(pixels: Any, processor: Any) -> Any:
    """One picture of any size, 0 to 255, as the network takes it: resized, normalized, channels first."""
    size = (processor.size["height"], processor.size["width"])
    resized = tf.image.resize(pixels, size) / 255
    normalized = (resized - tf.constant(processor.image_mean)) / tf.constant(processor.image_std)
    return tf.transpose(normalized, (2, 0, 1))


def network_of(model: Any, processor: Any) -> Any:
    """The network alone: pixels in, logits out."""
    shape = [None, CHANNELS, processor.size["height"], processor.size["width"]]
    return tf.function(model.call).get_concrete_function(
        tf.TensorSpec(shape, tf.float32, name=CONCRETE_INPUT)
    )


def exporter(model: Any, processor: Any) -> Any:
    """The signature: strings of web-safe base64 of JPEG files in, labels and confidences out."""
    network = network_of(model, processor)
    labels = tf.constant(labels_of(model))

    def preprocess(string: Any) -> Any:
        return preprocess_pixels(tf.io.decode_jpeg(tf.io.decode_base64(string), channels=CHANNELS), processor)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serving_fn(string_input: Any) -> dict[str, Any]:
        images = tf.map_fn(preprocess, string_input, fn_output_signature=tf.float32)
        probabilities = tf.nn.softmax(network(**{CONCRETE_INPUT: images}).logits, axis=1)
        return {
            "label": tf.gather(labels, tf.argmax(probabilities, axis=1)),
            "confidence": tf.reduce_max(probabilities, axis=1),
        }

    return serving_fn


def labels_of(model: Any) -> list[str]:
    """The words of the network's classes, in order."""
    return list(model.config.id2label.values())


def copy_photographs() -> None:
    """Copy the photographs that come with scikit-learn."""
    import sklearn.datasets

    for name in PHOTOGRAPHS:
        shutil.copyfile(Path(sklearn.datasets.__file__).parent / "images" / name, BUILD / name)


def urlsafe_base64(path: Path) -> str:
    """A file as tf.io.decode_base64 reads it."""
    return base64.urlsafe_b64encode(path.read_bytes()).decode("utf-8")


if __name__ == "__main__":
    main()
