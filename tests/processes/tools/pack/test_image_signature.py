"""`pack --labels` of SavedModels; README.md of the examples labels_in_graph and vit_in_graph have pictures."""

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from support.network import save_network

pytestmark = pytest.mark.tensorflow

COLOURS = ("red", "green", "blue")


def tfs_proxy(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tfs_proxy.cli", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)


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
