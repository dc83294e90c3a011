"""What is exported of a Keras file answers as `predict` does, or it is not packed; with both generations."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.model_fixtures import Exported
from tfs_proxy.cli import main
from tfs_proxy.model.graph_ops import unsteady_parts
from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.tools.export.child import ExportRequest, export
from tfs_proxy.values.errors import ExportError

pytestmark = pytest.mark.tensorflow

FILES = """
import random, sys
import keras, tf_keras

root = sys.argv[1]
for name, library in (("keras", keras), ("tf_keras", tf_keras)):
    layers = library.layers

    def trained(taken):
        # Resizing of Keras 3 and Random* layers are in training mode unless told otherwise.
        turned = library.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.2)])
        return layers.BatchNormalization()(layers.Flatten()(layers.Resizing(4, 4)(turned(taken))))

    picture, numbers = library.Input((8, 8, 1), name="picture"), library.Input((3,), name="x")
    model = library.Model(picture, trained(picture))
    model.save(f"{root}/{name}.keras")
    model.save(f"{root}/{name}.h5")
    model.export(f"{root}/{name}/1")
    nested = library.Model({"a": [picture, numbers]}, [[trained(picture)], layers.Dense(2)(numbers)])
    nested.save(f"{root}/nested_{name}.keras")
    # Keras traces this once for each function, so that two of them are of two minds.
    drawn = layers.Lambda(lambda x: x * __import__("random").random(), output_shape=(3,), name="drawn")
    library.Model(numbers, drawn(numbers)).save(f"{root}/drawn_{name}.keras")
keras.Model(fixed := keras.Input(batch_shape=(4, 3)), keras.layers.LSTM(2)(fixed[..., None])).save(f"{root}/fixed.keras")
keras.Model(size := keras.Input((None, None, 1)), keras.layers.Conv2D(1, 40)(size)).save(f"{root}/sizes.keras")
sentence = keras.Input((1,), dtype="string")
words = keras.layers.TextVectorization(vocabulary=["first", "third"], output_sequence_length=3)(sentence)
keras.Model(sentence, keras.layers.Embedding(4, 2, dtype="mixed_bfloat16")(words)).save(f"{root}/words.keras")
noise = tf_keras.layers.Dropout(0.5, name="noise")(numbers, training=True)
tf_keras.Model(numbers, noise).save(f"{root}/noise.h5")
numbers = keras.Input((3,))
keras.Model(numbers, keras.ops.log(numbers * 0 - 1)).save(f"{root}/nothing.keras")
"""

COMPARE = """
import importlib, sys
from pathlib import Path
import tensorflow as tf
from tfs_proxy.tools.export.comparison import compare
from tfs_proxy.tools.export.keras_files import Exported

model = importlib.import_module(sys.argv[1]).models.load_model(f"{sys.argv[2]}.keras", compile=False)
picture = tf.TensorSpec((None, 8, 8, 1), tf.float32, "picture")
compare(Exported(model, picture, lambda answer: {"output_0": answer}), Path(sys.argv[2], "1"))
"""


@pytest.mark.parametrize(
    "file",
    [
        *(
            "keras.keras",
            "keras.h5",
            "nested_keras.keras",
            "tf_keras.keras",
            "tf_keras.h5",
            "nested_tf_keras.keras",
        ),
        *("fixed.keras", "sizes.keras", "words.keras"),
    ],
)
def test_answers_are_those_of_predict(exported: Exported, tmp_path: Path, file: str) -> None:
    """All could be compared, and nothing in the graph is in training mode."""
    report = export(ExportRequest(exported(FILES) / file, tmp_path / "model"))

    assert report.warnings == ()
    summary = read_saved_model(tmp_path / "model")
    assert summary is not None
    assert not any(unsteady_parts(tmp_path / "model", summary.signatures.values()).values())


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_a_real_fault(exported: Exported, capsys: pytest.CaptureFixture[str], library: str) -> None:
    """`model.export` of either generation is in training mode: `compare` refuses it, and `check` notes it."""
    folder = exported(FILES) / library

    done = subprocess.run(
        [sys.executable, "-c", COMPARE, library, str(folder)], capture_output=True, text=True, check=False
    )
    assert "does not answer as predict does: output output_0 is up to" in done.stderr

    assert main(["check", "--strict", str(folder)]) == 0
    (note,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Note: "))
    assert "a random op (" in note
    assert "training=False" in note


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_a_difference(exported: Exported, tmp_path: Path, library: str) -> None:
    request = ExportRequest(exported(FILES) / f"drawn_{library}.keras", tmp_path / "model", allow_code=True)

    with pytest.raises(ExportError, match=r"output drawn is up to [0-9.e-]+ away.*Save the model without"):
        export(request)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("noise.h5", "predict differs from itself: output noise is up to"),
        ("nothing.keras", "output log has no number."),
    ],
)
def test_what_could_not_be_compared(exported: Exported, tmp_path: Path, file: str, says: str) -> None:
    (warning,) = export(ExportRequest(exported(FILES) / file, tmp_path / "model")).warnings

    assert warning.startswith("The exported answers were not compared with those of predict: ")
    assert says in warning
