"""The body of ``POST /models`` -> a name and a path: pure."""

import json
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

from tfs_proxy.errors import BadInput
from tfs_proxy.names import LOADED_MODEL_RULE, is_loaded_model_name

SHAPE = '{"model_name": "NAME", "url": "/PATH/TO/MODEL"}'


class LoadRequest(Struct, frozen=True):
    """Load the model at the path ``url`` of this machine under the name ``model_name``."""

    model_name: str
    url: str


def read_load_request(body: bytes) -> LoadRequest:
    """Read the body; fields of other names are ignored. Raises BadInput that names the field at fault."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise BadInput(f"not a load request: the body is not JSON; send {SHAPE}") from None
    if not isinstance(fields, dict):
        raise BadInput(f"not a load request: the body is not a JSON object; send {SHAPE}")
    return checked_load_request(_text(fields, "model_name"), _text(fields, "url"))


def checked_load_request(name: str, url: str) -> LoadRequest:
    """The request for a name and a path; raises BadInput if one of them can't be that."""
    if not is_loaded_model_name(name):
        raise BadInput(
            f"not a load request: model_name can't be a model's name, which has {LOADED_MODEL_RULE}"
        )
    if not PurePosixPath(url).is_absolute() or not url.isprintable():
        raise BadInput("not a load request: url is not an absolute path on this machine")
    return LoadRequest(name, url)


def _text(fields: dict[str, Any], field: str) -> str:
    if field not in fields:
        raise BadInput(f"not a load request: {field} is missing; send {SHAPE}")
    value = fields[field]
    if not isinstance(value, str) or not value:
        raise BadInput(f"not a load request: {field} is not a text, or is empty; send {SHAPE}")
    return value
