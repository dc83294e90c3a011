"""Pictures through a saved graph: the same numbers as the same steps in Python, and refusals of hostile files."""

import struct
import zlib
from pathlib import Path
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from support.network import encoded, pixels, save_network, signatures_of
from tfs_proxy.tools.export.added_signatures import add_signatures
from tfs_proxy.tools.export.preprocessing import ImageInput, Preprocessing
from tfs_proxy.values.errors import ExportError

pytestmark = pytest.mark.tensorflow

SIZES = ((31, 47), (24, 20), (90, 13), (5, 7))
"""Of the pictures of a batch; the second is the network's own."""

PICTURES = tf.TensorSpec([None, 24, 20, 3], name="x")
MEANS = "mean=0.5,0.4,0.3;std=0.2"


def seen(images: Any) -> dict[str, Any]:
    return {"seen": tf.identity(images)}


def prepared(folder: Path, spec: tf.TensorSpec, text: str) -> Any:
    """The new signature before a network of one input, which answers what reaches it."""
    source = save_network(folder / "source", seen, spec)
    add_signatures(source, folder / "target", Preprocessing(image=ImageInput.parse(text)))
    return signatures_of(folder / "target")["serving_default"]


def reference(file: bytes, mode: str) -> Any:
    """The same steps in Python: tf.image, and Keras' own preprocess_input."""
    resized = tf.image.resize(tf.io.decode_image(file, 3), (24, 20)).numpy()
    if mode in ("tf", "torch", "caffe"):
        return keras.applications.imagenet_utils.preprocess_input(
            resized, data_format="channels_last", mode=mode
        )
    if mode == MEANS:
        return (resized / 255 - np.array([0.5, 0.4, 0.3], np.float32)) / np.float32(0.2)
    return resized / 255 if mode == "scale" else resized


@pytest.mark.parametrize("mode", ["none", "scale", "tf", "torch", "caffe", MEANS])
def test_network_gets_what_python_would_give_it(tmp_path: Path, mode: str) -> None:
    """For a batch of JPEG and PNG files of different sizes, no pixel differs by more than 1e-6."""
    answer = prepared(tmp_path, PICTURES, f"24x20:{mode}")
    files = [encoded(pixels(*size, seed=size[0]), kind) for size in SIZES for kind in ("PNG", "JPEG")]

    got = answer(image=tf.constant(files))["seen"].numpy()

    expected = np.stack([reference(file, mode) for file in files])
    assert np.abs(got - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_pixels_are_those_of_pillow(tmp_path: Path, kind: str) -> None:
    """A PNG is decoded to the very same numbers; of a JPEG no more than 3 of 255 are rounded otherwise."""
    answer = prepared(tmp_path, PICTURES, "24x20")
    file = encoded(pixels(24, 20), kind)
    (tmp_path / "picture").write_bytes(file)

    got = answer(image=tf.constant([file]))["seen"].numpy()[0]

    expected = np.asarray(Image.open(tmp_path / "picture"), np.float32)
    assert np.abs(got - expected).max() <= {"PNG": 0, "JPEG": 3}[kind]


@pytest.mark.parametrize(
    ("shape", "dtype", "channels", "axes"),
    [
        ((None, 24, 20, 1), tf.float32, 1, (0, 1, 2)),
        ((None, 24, 20), tf.float32, 1, (0, 1)),
        ((None, 24, 20, 4), tf.float32, 4, (0, 1, 2)),
        ((None, 3, 24, 20), tf.float32, 3, (2, 0, 1)),
        ((None, 3, None, None), tf.float32, 3, (2, 0, 1)),
        ((None, None, None, None), tf.float32, 3, (0, 1, 2)),
        ((2, 24, 20, 3), tf.uint8, 3, (0, 1, 2)),
        ((None, 24, 20, 3), tf.int32, 3, (0, 1, 2)),
        ((None, 24, 20, 3), tf.float16, 3, (0, 1, 2)),
    ],
)
def test_channels_and_type_are_the_models(
    tmp_path: Path, shape: tuple[int | None, ...], dtype: tf.DType, channels: int, axes: tuple[int, ...]
) -> None:
    """Grayscale with or without an axis for it, alpha, channels first, any size, whole numbers, a fixed batch."""
    answer = prepared(tmp_path, tf.TensorSpec(shape, dtype, "x"), "24x20")
    picture = pixels(24, 20, channels)

    got = answer(image=tf.constant([encoded(picture)] * 2))["seen"]

    assert got.dtype == dtype
    expected = (picture[..., 0] if len(axes) == 2 else picture).transpose(axes)
    np.testing.assert_array_equal(got.numpy(), np.stack([expected, expected]).astype(dtype.as_numpy_dtype))


@pytest.mark.parametrize(
    ("shape", "dtype", "text", "reason"),
    [
        ((None, 24, 20, 3), tf.float32, "20x24", "takes float32 of the shape"),
        ((None, 24, 20, 2), tf.float32, "24x20", "1, 3 or 4 channels"),
        ((None, 24, 20, 1), tf.float32, "24x20:torch", "has 1 channels, and the mode is for 3"),
        ((None, 24, 20, 3), tf.uint8, "24x20:scale", "the mode must be none"),
        ((None, 24, 20, 3), tf.int8, "24x20", "numbers from 0 to 255"),
        ((None, 480), tf.float32, "24x20", "numbers from 0 to 255"),
        (None, tf.float32, "24x20", "the shape of input x is unknown"),
        ((None,), tf.string, "24x20", "numbers from 0 to 255"),
    ],
)
def test_networks_for_other_inputs_are_refused(
    tmp_path: Path, shape: tuple[int | None, ...] | None, dtype: tf.DType, text: str, reason: str
) -> None:
    with pytest.raises(ExportError, match=reason):
        prepared(tmp_path, tf.TensorSpec(shape, dtype, "x"), text)

    assert not (tmp_path / "target").exists()


def test_network_that_fails_for_the_size_is_refused(tmp_path: Path) -> None:
    """A network for any size may still need a larger one: a sample tells, before anything is written."""

    def convolved(images: Any) -> Any:
        return {"y": tf.nn.conv2d(images, tf.ones((9, 9, 3, 1)), 1, "VALID")}

    source = save_network(tmp_path / "source", convolved, tf.TensorSpec([None, None, None, 3], name="x"))
    with pytest.raises(ExportError, match="does not answer a sample"):
        add_signatures(source, tmp_path / "target", Preprocessing(image=ImageInput.parse("4x4")))


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def claiming(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))


WHOLE_JPEG = encoded(pixels(24, 20), "JPEG")


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"", "image 1 is neither a JPEG nor a PNG file"),
        (b"a text file", "image 1 is neither a JPEG nor a PNG file"),
        (encoded(pixels(24, 20), "GIF"), "image 1 is neither a JPEG nor a PNG file"),
        (encoded(pixels(24, 20))[:10], "image 1 is neither a JPEG nor a PNG file"),
        (encoded(pixels(24, 20))[:500], "Invalid PNG data"),
        (WHOLE_JPEG[:20], "Invalid JPEG data"),
        (WHOLE_JPEG[:-200], "Invalid JPEG data"),
        (claiming(30_000, 30_000), "image 1 has 900000000 pixels, and at most 67108864 are decoded"),
        (claiming(2**32 - 1, 2**32 - 1), "pixels|decoder"),
    ],
)
def test_files_that_are_no_pictures_are_the_clients_mistake(tmp_path: Path, file: bytes, reason: str) -> None:
    """Broken ones, those of other kinds, and those that claim to be huge: InvalidArgument, which is a 400."""
    answer = prepared(tmp_path, PICTURES, "24x20")

    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        answer(image=tf.constant([encoded(pixels(9, 9)), file]))
