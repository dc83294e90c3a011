"""A SavedModel with labels or standardized columns in its graph, beside its own signature."""

from pathlib import Path
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from support.network import encoded, pixels, save_network, signatures_of
from tfs_proxy.tools.export.added_signatures import add_signatures
from tfs_proxy.tools.export.preprocessing import ImageInput, Preprocessing, Standardization
from tfs_proxy.values.errors import ExportError

pytestmark = pytest.mark.tensorflow

ANIMALS = ("cat", "dog", "Żubr")
ROWS = tf.TensorSpec([None, 3], tf.float32, "x")


def logits(rows: Any) -> dict[str, Any]:
    return {"scores": tf.identity(rows)}


def probabilities(rows: Any) -> dict[str, Any]:
    return {"scores": tf.nn.softmax(rows)}


def labelled(folder: Path, function: Any, spec: tf.TensorSpec = ROWS, **asked: Any) -> Any:
    """What the new signature answers, as a function of rows, and the warnings."""
    source = save_network(folder / "source", function, spec)
    warnings = add_signatures(source, folder / "target", Preprocessing(**asked))
    signature = signatures_of(folder / "target")["serving_default"]

    def answer(rows: Any) -> dict[str, Any]:
        return {name: value.numpy() for name, value in signature(x=rows).items()}

    return answer, warnings


def test_most_probable_labels_come_first(tmp_path: Path) -> None:
    answer, warnings = labelled(tmp_path, logits, labels=ANIMALS, top=2, softmax=True)
    rows = np.array([[0, 1, 2], [5, 0, 1]], np.float32)

    got = answer(tf.constant(rows))

    expected = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
    assert [[label.decode() for label in row] for row in got["labels"]] == [["Żubr", "dog"], ["cat", "Żubr"]]
    np.testing.assert_allclose(got["probabilities"], [expected[0][[2, 1]], expected[1][[0, 2]]], atol=1e-7)
    assert warnings == []


@pytest.mark.parametrize(
    ("top", "warned"), [(None, []), (9, ["--top 9: the model has 3 classes, and answers as many."])]
)
def test_labels_are_as_many_as_classes_at_most(tmp_path: Path, top: int | None, warned: list[str]) -> None:
    """Five without a number; more than there are is a warning."""
    answer, warnings = labelled(tmp_path, probabilities, labels=ANIMALS, top=top)

    assert answer(tf.zeros((1, 3)))["labels"].shape == (1, 3)
    assert warnings == warned


def test_top_without_labels_answers_numbers_of_classes(tmp_path: Path) -> None:
    answer, _ = labelled(tmp_path, probabilities, top=1)

    got = answer(tf.constant([[0.0, 9.0, 1.0]]))
    assert (got["labels"].tolist(), got["labels"].dtype) == ([[1]], np.int64)


def test_softmax_alone_keeps_the_output(tmp_path: Path) -> None:
    answer, _ = labelled(tmp_path, logits, softmax=True)

    np.testing.assert_allclose(answer(tf.zeros((1, 3)))["scores"], [[1 / 3] * 3], atol=1e-7)


def test_softmax_that_is_missing_or_too_much_is_a_warning(tmp_path: Path) -> None:
    _, missing = labelled(tmp_path / "a", logits, labels=ANIMALS)
    _, doubled = labelled(tmp_path / "b", probabilities, labels=ANIMALS, softmax=True)

    assert ["add --softmax" in warning for warning in missing] == [True]
    assert ["probabilities already" in warning for warning in doubled] == [True]


@pytest.mark.parametrize(
    ("function", "shape", "asked", "reason"),
    [
        (logits, [None, 3], {"labels": ANIMALS[:2]}, "--labels has 2 labels, and output scores 3 classes"),
        (logits, [None, 1], {"labels": ANIMALS[:2]}, "a sigmoid's one column"),
        (
            lambda x: {"scores": tf.reshape(x, tf.stack([-1, tf.shape(x)[1]]))},
            [None, 2],
            {"labels": ANIMALS},
            "--labels has 3 labels, and output scores 2 classes",
        ),
        (logits, [None, None], {"top": 2}, "how many classes output scores has is unknown; give --labels"),
        (logits, [None, 2, 3], {"labels": ANIMALS}, "not a row of floats"),
        (lambda x: {"id": tf.argmax(x, axis=1)}, [None, 3], {"labels": ANIMALS}, "not a row of floats"),
        (lambda x: {"a": x, "b": x}, [None, 3], {"labels": ANIMALS}, "one output; this one has a, b"),
    ],
)
def test_outputs_that_labels_do_not_fit_are_refused(
    tmp_path: Path, function: Any, shape: list[int | None], asked: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ExportError, match=reason):
        labelled(tmp_path, function, tf.TensorSpec(shape, tf.float32, "x"), **asked)


def test_classes_that_the_signature_leaves_open_are_the_labels(tmp_path: Path) -> None:
    """Nothing can be tried before a request comes; one with another number of classes fails."""
    answer, warnings = labelled(
        tmp_path, probabilities, tf.TensorSpec([None, None], tf.float32, "x"), labels=ANIMALS, top=1
    )

    assert answer(tf.constant([[0.0, 9.0, 1.0]]))["labels"].tolist() == [[b"dog"]]
    assert warnings == ()
    with pytest.raises(tf.errors.InvalidArgumentError):
        answer(tf.zeros((1, 4)))


def test_columns_are_standardized(tmp_path: Path) -> None:
    """Of an input that keeps its name."""
    rng = np.random.default_rng(3)
    mean, std = rng.normal(50, 20, 3), rng.uniform(0.1, 9, 3)
    module = tf.Module()
    module.run = tf.function(
        lambda a, b: {"a": tf.identity(a), "b": tf.identity(b)},
        input_signature=[tf.TensorSpec([None, 3], tf.float32, "A"), tf.TensorSpec([None], tf.string, "b")],
    )
    tf.saved_model.save(module, str(tmp_path / "source"), signatures=module.run)
    asked = Preprocessing(standardize={"A": Standardization(tuple(mean), tuple(std))})

    assert add_signatures(tmp_path / "source", tmp_path / "target", asked) == []

    rows = rng.normal(50, 20, (100, 3)).astype(np.float32)
    got = signatures_of(tmp_path / "target")["serving_default"](A=tf.constant(rows), b=tf.constant(["x"]))
    assert np.abs(got["a"].numpy() - (rows - mean) / std).max() <= 1e-4
    assert got["b"].numpy().tolist() == [b"x"]


@pytest.mark.parametrize(
    ("spec", "asked", "reason"),
    [
        (ROWS, {"y": Standardization((1.0,), (1.0,))}, "the model has no input y; it has x"),
        (ROWS, {"x": Standardization((1.0,) * 2, (1.0,) * 2)}, "x has 2 means, and the input 3 columns"),
        (ROWS, {"x": Standardization((1e300,), (1.0,))}, "too large or too small for float32"),
        (ROWS, {"x": Standardization((1.0,), (1e-300,))}, "too large or too small for float32"),
        (
            tf.TensorSpec([None], tf.float32, "x"),
            {"x": Standardization((1.0,) * 2, (1.0,) * 2)},
            "x has 2 means, and the input 1 columns",
        ),
        (
            tf.TensorSpec([None, None], tf.float32, "x"),
            {"x": Standardization((1.0,) * 2, (1.0,) * 2)},
            "any number of columns",
        ),
        (tf.TensorSpec([None, 3], tf.int32, "x"), {"x": Standardization((1.0,), (1.0,))}, "takes int32"),
        (tf.TensorSpec(None, tf.float32, "x"), {"x": Standardization((1.0,), (1.0,))}, "x is unknown"),
    ],
)
def test_inputs_that_numbers_do_not_fit_are_refused(
    tmp_path: Path, spec: tf.TensorSpec, asked: dict[str, Standardization], reason: str
) -> None:
    with pytest.raises(ExportError, match=reason):
        labelled(tmp_path, logits, spec, standardize=asked)


def test_own_signature_stays_as_raw_and_variables_are_shared(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((64, 64, 3), name="pixels"), keras.layers.Flatten()])
    model.add(keras.layers.Dense(20))
    model.export(str(tmp_path / "source"), verbose=False)
    asked = Preprocessing(
        image=ImageInput.parse("64x64:tf"), labels=tuple("abcdefghijklmnopqrst"), softmax=True
    )

    add_signatures(tmp_path / "source", tmp_path / "target", asked)

    files = [file.stat().st_size for file in (tmp_path / "source").rglob("*") if file.is_file()]
    added = [file.stat().st_size for file in (tmp_path / "target").rglob("*") if file.is_file()]
    assert sum(files) > 900_000
    assert sum(added) < sum(files) + 200_000
    signatures, picture = signatures_of(tmp_path / "target"), pixels(64, 64)
    batch = picture[None] / np.float32(127.5) - 1
    scores = model(batch).numpy()
    np.testing.assert_allclose(
        next(iter(signatures["raw"](pixels=tf.constant(batch)).values())), scores, atol=1e-5
    )
    top = signatures["serving_default"](image=tf.constant([encoded(picture)]))
    assert top["labels"].numpy()[0, 0].decode() == "abcdefghijklmnopqrst"[scores.argmax()]


def test_graph_has_nothing_but_operations_of_tensorflow_itself(tmp_path: Path) -> None:
    """No Python in it and no library of operations beside TensorFlow's own: any TensorFlow Serving runs it."""
    spec = tf.TensorSpec([None, 8, 8, 3], tf.float32, "x")
    source = save_network(tmp_path / "source", lambda x: {"y": tf.reduce_mean(x, [1, 2])}, spec)
    asked = Preprocessing(image=ImageInput.parse("8x8:torch"), labels=ANIMALS, softmax=True)

    add_signatures(source, tmp_path / "target", asked)

    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "target" / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    operations = {node.op for node in nodes}
    assert {"DecodeImage", "ResizeBilinear", "TopKV2"} <= operations
    assert operations <= set(dir(tf.raw_ops))
    assert not {operation for operation in operations if "Py" in operation}


def test_tables_and_vocabularies_of_the_model_go_along(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("red\ngreen\n")
    line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    file = tf.lookup.TextFileInitializer(str(tmp_path / "words.txt"), tf.string, line, tf.int64, number)
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(file, -1)
    module.run = tf.function(
        lambda x: {"scores": tf.one_hot(module.table.lookup(x), 2)},
        input_signature=[tf.TensorSpec([None], tf.string, "x")],
    )
    tf.saved_model.save(module, str(tmp_path / "source"), signatures=module.run)

    add_signatures(tmp_path / "source", tmp_path / "target", Preprocessing(labels=("R", "G"), top=1))

    (tmp_path / "words.txt").unlink()
    (tmp_path / "source").rename(tmp_path / "gone")
    got = signatures_of(tmp_path / "target")["serving_default"](x=tf.constant(["green"]))
    assert got["labels"].numpy().tolist() == [[b"G"]]


def test_models_that_can_not_be_added_to_are_refused(tmp_path: Path) -> None:
    """One that has been added to, one of TensorFlow 1, one without a default signature, and a broken one."""
    asked = Preprocessing(softmax=True)
    source = save_network(tmp_path / "source", logits, ROWS)
    add_signatures(source, tmp_path / "once", asked)
    with pytest.raises(ExportError, match="has a signature raw already"):
        add_signatures(tmp_path / "once", tmp_path / "twice", asked)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3])
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "old"), {"x": x}, {"y": x * 2})
    with pytest.raises(ExportError, match="saved by TensorFlow 1"):
        add_signatures(tmp_path / "old", tmp_path / "new", asked)

    module = tf.Module()
    module.run = tf.function(logits, input_signature=[ROWS])
    tf.saved_model.save(module, str(tmp_path / "two"), signatures={"a": module.run, "b": module.run})
    with pytest.raises(ExportError, match="no signature serving_default to add to; it has a, b"):
        add_signatures(tmp_path / "two", tmp_path / "new", asked)

    (source / "saved_model.pb").write_bytes(b"\xff" * 100)
    with pytest.raises(ExportError, match="can't be loaded"):
        add_signatures(source, tmp_path / "new", asked)
