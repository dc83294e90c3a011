"""Export a model that says an image's mean colour, and pack it with the script: build/model.tar.gz.

build/orange.png is a picture to ask with.
"""

import tarfile
import tempfile
from pathlib import Path

import tensorflow as tf
from PIL import Image

HERE = Path(__file__).parent
ARCHIVE = HERE / "build" / "model.tar.gz"
IMAGES = tf.TensorSpec([None, 224, 224, 3], tf.float32, name="image")


def main() -> None:
    """Write the archive."""
    model = tf.Module()
    mean = tf.function(lambda image: {"colour": tf.reduce_mean(image, [1, 2])}, input_signature=[IMAGES])
    model.mean = mean
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, folder, signatures=mean)
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            archive.add(folder, "colours/1")
            archive.add(HERE / "inference.py", "code/inference.py")
    Image.new("RGB", (300, 200), (255, 128, 0)).save(ARCHIVE.parent / "orange.png")
    print(ARCHIVE)


if __name__ == "__main__":
    main()
