"""The script of the ResNet-50 model: JPEG bytes in, TF Serving's prediction out, unchanged.

It keeps to what AWS's container offers too: falcon's errors are understood by both.
"""

import base64
import json
from typing import Any

import falcon

MEDIA_TYPES = ("application/x-image", "image/jpeg")


def input_handler(data: Any, context: Any) -> str:
    """One JPEG file as TF Serving's JSON; binary values travel as base64 under the key b64."""
    media_type = (context.request_content_type or "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        wanted = " or ".join(MEDIA_TYPES)
        raise falcon.HTTPUnsupportedMediaType(description=f"This model takes {wanted}.")
    encoded = base64.b64encode(data.read()).decode()
    return json.dumps({"instances": [{"image_bytes": {"b64": encoded}}]})


def output_handler(response: Any, context: Any) -> tuple[bytes, str]:  # noqa: ARG001
    """What the model server answered, errors too: always JSON, whatever was asked for."""
    return response.content, "application/json"
