"""Export a model that halves and adds two, and pack it with the script: build/model.tar.gz."""

import tarfile
import tempfile
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).parent
ARCHIVE = HERE / "build" / "model.tar.gz"
NUMBERS = tf.TensorSpec([None], tf.float32, name="x")


def main() -> None:
    """Write the archive."""
    model = tf.Module()
    half = tf.function(lambda x: {"y": 0.5 * x + 2.0}, input_signature=[NUMBERS])
    model.half = half
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, folder, signatures=half)
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            archive.add(folder, "half_plus_two/1")
            archive.add(HERE / "inference.py", "code/inference.py")
    print(ARCHIVE)


if __name__ == "__main__":
    main()
