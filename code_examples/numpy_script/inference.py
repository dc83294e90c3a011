"""An image in, a float array to the model: no JSON between, because a list of 150,000 numbers would be slow."""

import io
import json
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from tfs_proxy import Context, HTTPError, ModelResponse

SIZE = (224, 224)


def input_handler(data: BinaryIO, context: Context) -> npt.NDArray[np.float32]:  # noqa: ARG001
    """One image file as an array of shape (1, 224, 224, 3), from 0 to 1: the model's only input."""
    try:
        picture = Image.open(io.BytesIO(data.read())).convert("RGB").resize(SIZE)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise HTTPError(400, "The body is not a readable image.") from error
    return np.asarray(picture, np.float32)[np.newaxis] / np.float32(255)


def output_handler(response: ModelResponse, context: Context) -> tuple[str, str]:  # noqa: ARG001
    """The model's outputs are arrays too."""
    red, green, blue = response.outputs["colour"][0].tolist()
    return json.dumps(
        {"red": round(red, 3), "green": round(green, 3), "blue": round(blue, 3)}
    ), "application/json"
