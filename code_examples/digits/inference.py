"""The script of the digits model: image bytes in, label and confidence out."""

import io
import json
from typing import Any

import numpy as np
from PIL import Image

from tfs_proxy import HTTPError

FORMATS = {
    "image/png": ("PNG",),
    "image/jpeg": ("JPEG",),
    "application/x-image": ("PNG", "JPEG"),
}
SIDE = 8


def input_handler(data: Any, context: Any) -> str:
    """One image, light ink on dark ground, as TF Serving's JSON: one record of 8x8x1 from 0 to 1."""
    media_type = (context.request_content_type or "").partition(";")[0].strip().lower()
    if media_type not in FORMATS:
        raise HTTPError(
            415, f"This model takes {', '.join(FORMATS)}, not {media_type or 'a body of no type'}."
        )
    pixels = to_pixels(data.read(), FORMATS[media_type])
    return json.dumps({"instances": [pixels.tolist()]})


def to_pixels(body: bytes, formats: tuple[str, ...]) -> Any:
    """The image as floats of shape (8, 8, 1)."""
    try:
        picture = Image.open(io.BytesIO(body), formats=formats)
        grey = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise HTTPError(400, f"The body is not a readable {' or '.join(formats)} image.") from error
    return np.asarray(grey, dtype=np.float32)[:, :, np.newaxis] / 255


def output_handler(response: Any, context: Any) -> tuple[str | bytes, str]:  # noqa: ARG001
    """The likeliest digit and how likely it is; an error of the model server goes on as it came."""
    if response.status_code != 200:
        return response.content, "application/json"
    probabilities = response.json()["predictions"][0]
    label = int(np.argmax(probabilities))
    return json.dumps({"label": label, "confidence": round(probabilities[label], 4)}), "application/json"
