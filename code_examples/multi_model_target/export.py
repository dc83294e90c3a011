"""Export a model for each city, as a demand forecast that is trained city by city: build/models/COUNTRY/CITY.tar.gz."""

import tarfile
import tempfile
from pathlib import Path

import tensorflow as tf

MODELS = Path(__file__).parent / "build" / "models"
BASE_DEMAND = {"fr/paris": 40.0, "fr/lyon": 12.0, "jp/osaka": 25.0}
NUMBERS = tf.TensorSpec([None], tf.float32, name="degrees")


def save(base: float, folder: str) -> None:
    """A SavedModel: each degree below 18 adds a fifth of a unit."""
    model = tf.Module()
    model.demand = tf.function(
        lambda degrees: {"demand": base + 0.2 * tf.nn.relu(18.0 - degrees)}, input_signature=[NUMBERS]
    )
    tf.saved_model.save(model, folder, signatures=model.demand)


def main() -> None:
    """Write the archives."""
    for name, base in BASE_DEMAND.items():
        target = MODELS / f"{name}.tar.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            save(base, folder)
            with tarfile.open(target, "w:gz") as archive:
                archive.add(folder, "demand/1")


if __name__ == "__main__":
    main()
