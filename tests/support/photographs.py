"""Small JPEG files, and TFRecords of tf.Examples that hold them, as jobs on photographs read them."""

import io
import json
import runpy
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from support.archives import pack
from tfs_proxy.data.formats.framing import tfrecord_frame

EXAMPLES = Path(__file__).parents[2] / "code_examples"
SHADES = 256


def photographs(count: int) -> list[bytes]:
    """One JPEG file of each shade of grey, from black to white and over again."""
    return [_jpeg(number % SHADES) for number in range(count)]


def _jpeg(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (24, 16), (shade, shade, shade)).save(file, "JPEG", quality=95)
    return file.getvalue()


def records(pictures: Sequence[bytes]) -> bytes:
    """A TFRecord file of one tf.Example (`image/encoded`) for each picture."""
    example = runpy.run_path(str(EXAMPLES / "resnet50_tfrecord" / "pack.py"))["example"]
    return b"".join(tfrecord_frame(example(picture)) for picture in pictures)


def photograph_archive(target: Path, saved_models: Path, example: str) -> Path:
    """The model `picture`, which answers with the mean of each picture, and an example's script."""
    script = (EXAMPLES / example / "inference.py").read_text()
    return pack(target, {"code/inference.py": script}, {"picture": saved_models / "picture"})


def shade(answer: bytes | str) -> int:
    """The shade of grey that a prediction of the model `picture` says."""
    (prediction,) = json.loads(answer)["predictions"]
    mean = prediction["mean"] if isinstance(prediction, dict) else prediction
    return round(float(mean) * (SHADES - 1))
