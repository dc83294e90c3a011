"""Export three models that multiply, and pack each with the folder of its script: build/{metres,feet,stones}.tar.gz."""

import tarfile
import tempfile
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).parent
FACTORS = {"metres": 0.3048, "feet": 3.28084, "stones": 0.157473}
NUMBERS = tf.TensorSpec([None], tf.float32, name="x")


def save(factor: float, folder: str) -> None:
    """A SavedModel that computes y = factor * x."""
    model = tf.Module()
    model.convert = tf.function(lambda x: {"y": factor * x}, input_signature=[NUMBERS])
    tf.saved_model.save(model, folder, signatures=model.convert)


def main() -> None:
    """Write the archives."""
    (HERE / "build").mkdir(exist_ok=True)
    for name, factor in FACTORS.items():
        with tempfile.TemporaryDirectory() as folder:
            save(factor, folder)
            with tarfile.open(HERE / "build" / f"{name}.tar.gz", "w:gz") as archive:
                archive.add(folder, f"{name}/1")
                for file in sorted((HERE / name).glob("*.py")):
                    archive.add(file, f"code/{file.name}")


if __name__ == "__main__":
    main()
