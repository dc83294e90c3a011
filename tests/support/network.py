"""Small SavedModels with known answers, and encoded pictures for them; imports tensorflow, in `processes` only."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image


def save_network(folder: Path, function: Callable[[Any], Any], *specs: tf.TensorSpec) -> Path:
    """A function as a SavedModel, whose only signature is ``serving_default``."""
    module = tf.Module()
    module.run = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(folder), signatures=module.run)
    return folder


def signatures_of(folder: Path) -> dict[str, Any]:
    """The signatures of a saved model, which need it to live."""
    loaded = tf.saved_model.load(str(folder))
    loaded.kept = dict(loaded.signatures)
    for signature in loaded.kept.values():
        signature.model = loaded
    return dict(loaded.kept)


def pixels(height: int, width: int, channels: int = 3, seed: int = 0) -> Any:
    """A smooth picture with some noise, 0 to 255; grayscale has one channel."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [128 + 80 * np.sin(rows / 7 + channel) * np.cos(columns / 9) for channel in range(channels)]
    noise = np.random.default_rng(seed).normal(0, 10, (height, width, channels))
    return np.clip(np.stack(waves, axis=-1) + noise, 0, 255).astype(np.uint8)


def encoded(picture: Any, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture).save(out, kind)
    return out.getvalue()
