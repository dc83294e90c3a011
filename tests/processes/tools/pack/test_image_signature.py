"""`pack --decode-image`: pictures go through a real stack, without attributes and without a script."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy as np
import pytest
import tensorflow as tf

from support.network import encoded, pixels, save_network
from support.stack import Stack, serving

pytestmark = pytest.mark.tensorflow

COLOURS = ("red", "green", "blue")
PICTURES = {
    colour: np.where(np.eye(3, dtype=bool)[index], 200, pixels(20 + 9 * index, 30, seed=index) // 4)
    for index, colour in enumerate(COLOURS)
}
"""A picture of each colour, of different sizes."""


def tfs_proxy(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tfs_proxy.cli", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed Keras model whose logits are the mean colours of a picture, eight times."""
    folder = tmp_path_factory.mktemp("colours")
    inputs = keras.Input((16, 16, 3), name="pixels")
    means = keras.layers.GlobalAveragePooling2D()(inputs)
    keras.Model(inputs, keras.layers.Rescaling(8.0)(means)).save(folder / "colours.keras")
    (folder / "labels.txt").write_text("\n".join(COLOURS))
    flags = ("--decode-image", "16x16:scale", "--labels", folder / "labels.txt", "--top", "2", "--softmax")
    done = tfs_proxy("pack", folder / "colours.keras", "-o", folder / "model.tar.gz", *flags)
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stdout + done.stderr
    return folder / "model.tar.gz"


@pytest.fixture(scope="module")
def stack(archive: Path) -> Iterator[Stack]:
    with serving(str(archive)) as running:
        yield running


def expected(file: bytes) -> tuple[list[str], Any]:
    """The two most probable colours and their probabilities, by the same steps in Python."""
    resized = tf.image.resize(tf.io.decode_image(file, 3), (16, 16)).numpy() / 255
    scores = np.exp(8 * resized.mean(axis=(0, 1)))
    order = np.argsort(-scores)[:2]
    return [COLOURS[index] for index in order], scores[order] / scores.sum()


def files(kind: str = "PNG") -> list[bytes]:
    """The pictures as files, in the order of their colours."""
    return [encoded(PICTURES[colour].astype(np.uint8), kind) for colour in COLOURS]


def assert_right(predictions: Any, sent: list[bytes]) -> None:
    """Every record has the labels and the probabilities that Python has for its picture."""
    assert len(predictions) == len(sent)
    for prediction, file in zip(predictions, sent, strict=True):
        labels, probabilities = expected(file)
        assert prediction["labels"] == labels
        np.testing.assert_allclose(prediction["probabilities"], probabilities, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("JPEG", "image/jpg"), ("PNG", "application/x-image")],
)
def test_body_is_a_picture(stack: Stack, kind: str, content_type: str) -> None:
    for file in files(kind):
        answer = stack.invoke(file, content_type)

        assert answer.status == 200, answer.body
        assert_right(answer.json["predictions"], [file])


@pytest.mark.parametrize("path", ["/invocations", "/v1/models/colours:predict"])
def test_json_has_a_batch_of_pictures_as_base64(stack: Stack, path: str) -> None:
    """In all forms that TensorFlow Serving reads; pictures of a batch have different sizes and kinds."""
    sent = [*files("PNG"), *files("JPEG")]
    records = [{"b64": base64.b64encode(file).decode()} for file in sent]
    for body in ({"instances": records}, {"instances": [{"image": record} for record in records]}):
        answer = stack.ask("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        assert answer.status == 200, answer.body
        assert_right(answer.json["predictions"], sent)
    columns = stack.ask(
        "POST", path, json.dumps({"inputs": {"image": records}}), {"Content-Type": "application/json"}
    )
    outputs = columns.json["outputs"]
    rows = zip(outputs["labels"], outputs["probabilities"], strict=True)
    assert_right([{"labels": labels, "probabilities": values} for labels, values in rows], sent)


def test_model_still_takes_arrays(stack: Stack) -> None:
    """Its own signature is `raw`, and answers the logits."""
    image = (PICTURES["blue"][:16, :16] / 255).astype(np.float32)
    body = json.dumps({"signature_name": "raw", "instances": [image.tolist()]})

    answer = stack.ask("POST", "/v1/models/colours:predict", body)

    np.testing.assert_allclose(answer.json["predictions"], [8 * image.mean(axis=(0, 1))], atol=1e-4)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", ""),
        (b"a text file", "neither a JPEG nor a PNG file"),
        (files("PNG")[0][:300], "Invalid PNG data"),
        (files("JPEG")[0][:300], "Invalid JPEG data"),
    ],
)
def test_broken_picture_is_the_clients_mistake(stack: Stack, body: bytes, reason: str) -> None:
    answer = stack.invoke(body, "image/png")

    assert (answer.status, reason in answer.json["error"]) == (400, True), answer.body


def test_same_pack_gives_the_same_bytes_of_a_saved_model(tmp_path: Path) -> None:
    """A SavedModel that gets labels is packed like any other; a doubt about it is on the terminal."""
    spec = tf.TensorSpec([None, 3], tf.float32, "x")
    save_network(tmp_path / "scores" / "7", lambda x: {"y": x * 2}, spec)
    (tmp_path / "labels.txt").write_text("\n".join(COLOURS))
    for name in ("one", "two"):
        done = tfs_proxy(
            *("pack", tmp_path / "scores", "-o", tmp_path / f"{name}.tar.gz"),
            *("--labels", tmp_path / "labels.txt"),
        )
        assert (done.returncode, "add --softmax" in done.stderr) == (0, True), done.stderr

    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_flags_that_do_not_fit_write_nothing(tmp_path: Path) -> None:
    """Too few labels, several models: exit status 2 and a sentence."""
    spec = tf.TensorSpec([None, 3], tf.float32, "x")
    for name in ("both/a/1", "both/b/1", "scores/1"):
        save_network(tmp_path / name, lambda x: {"y": tf.nn.softmax(x)}, spec)
    (tmp_path / "labels.txt").write_text("red\ngreen\n")
    reasons = {
        "scores": "--labels has 2 labels, and output y 3 classes",
        "both": "are for one model: a, b are in",
    }
    for model, reason in reasons.items():
        flags = ("-o", tmp_path / "model.tar.gz", "--labels", tmp_path / "labels.txt")
        done = tfs_proxy("pack", tmp_path / model, *flags)

        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "model.tar.gz").exists()
