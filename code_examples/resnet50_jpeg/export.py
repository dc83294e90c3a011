"""Export a ResNet-50 that reads JPEG bytes, with random weights, and pack it as build/model.tar.gz.

build/images/ gets two photographs and build/expected.json the answers of the SavedModel, called directly. Does nothing when the archive is newer than this file and inference.py.
"""

import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
ARCHIVE = BUILD / "model.tar.gz"
IMAGES = BUILD / "images"
EXPECTED = BUILD / "expected.json"
SOURCES = (HERE / "export.py", HERE / "inference.py")

SEED = 20
SIDE = 224
PHOTOGRAPHS = ("china.jpg", "flower.jpg")


def main() -> None:
    """Export, pack and note the expected answers, unless that has been done."""
    if is_fresh():
        print(f"{ARCHIVE} is up to date")
        return
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        saved_model = Path(folder) / "resnet50" / "1"
        export(saved_model)
        copy_photographs()
        EXPECTED.write_text(json.dumps(ask_directly(saved_model), indent=1) + "\n")
        pack(Path(folder))
    print(f"packed {ARCHIVE} ({ARCHIVE.stat().st_size / 1024 / 1024:.0f} MB)")


def is_fresh() -> bool:
    """Tell if the archive is newer than its sources, and the files made with it are there."""
    if not (ARCHIVE.exists() and EXPECTED.exists() and IMAGES.is_dir()):
        return False
    newest_source = max(path.stat().st_mtime for path in SOURCES)
    return ARCHIVE.stat().st_mtime > newest_source


def export(folder: Path) -> None:
    """Write the SavedModel: image_bytes (n JPEG files) in, classes and probabilities out."""
    import tensorflow as tf
    from tensorflow import keras

    keras.utils.set_random_seed(SEED)
    network = keras.applications.ResNet50(weights=None)

    def decode(jpeg: Any) -> Any:
        picture = tf.image.decode_jpeg(jpeg, channels=3)
        return tf.image.resize(picture, (SIDE, SIDE))

    def classify(image_bytes: Any) -> dict[str, Any]:
        pictures = tf.map_fn(decode, image_bytes, fn_output_signature=tf.float32)
        probabilities = network(keras.applications.resnet50.preprocess_input(pictures), training=False)
        return {"classes": tf.argmax(probabilities, axis=-1), "probabilities": probabilities}

    # An ExportArchive names the network's variables so that TF Serving finds them; a plain
    # tf.Module that holds a Keras 3 model saves without complaint and then fails every request.
    archive = keras.export.ExportArchive()
    archive.add_endpoint("serve", classify, [tf.TensorSpec([None], tf.string, name="image_bytes")])
    archive.write_out(str(folder), verbose=False)


def copy_photographs() -> None:
    """Copy the photographs that come with scikit-learn."""
    import sklearn.datasets

    source = Path(sklearn.datasets.__file__).parent / "images"
    IMAGES.mkdir(exist_ok=True)
    for name in PHOTOGRAPHS:
        shutil.copyfile(source / name, IMAGES / name)


def ask_directly(saved_model: Path) -> dict[str, dict[str, float]]:
    """For each photograph the class and its probability, from the SavedModel without any server."""
    import tensorflow as tf

    signature = tf.saved_model.load(str(saved_model)).signatures["serving_default"]
    answers = {}
    for name in PHOTOGRAPHS:
        outputs = signature(image_bytes=tf.constant([(IMAGES / name).read_bytes()]))
        answers[name] = {
            "class": int(outputs["classes"][0]),
            "probability": float(tf.reduce_max(outputs["probabilities"][0])),
        }
    return answers


def pack(folder: Path) -> None:
    """Write resnet50/1/... and code/inference.py as model.tar.gz, in place only when it is whole."""
    packed = folder / ARCHIVE.name
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
        archive.add(folder / "resnet50", "resnet50")
        archive.add(HERE / "inference.py", "code/inference.py")
    packed.replace(ARCHIVE)


if __name__ == "__main__":
    main()
