"""What all bodies of TF Serving's REST API have in common, and how its refusals show them."""

import json
from itertools import islice
from typing import Any

from tfs_proxy.embedded.errors import invalid
from tfs_proxy.errors import BadInput
from tfs_proxy.memory import RESERVED_FROM_BYTES, STRING_BYTES, MemoryBudget
from tfs_proxy.serving_json.documents import first_document

_SHOWN_PIECES, _SHOWN_CHARACTERS = 1000, 1000


def read_object(body: bytes, budget: MemoryBudget) -> dict[str, Any]:
    """The object that a body is. Raises ServingError, and what the budget does."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    budget.take_json(body)
    if len(body) >= RESERVED_FROM_BYTES:
        # Each string becomes bytes in an array beside what was parsed.
        budget.take(body.count(b'"') // 2 * STRING_BYTES)
    try:
        document = first_document(body)
    except BadInput as error:
        raise invalid(f"JSON Parse error: {error}") from error
    if type(document) is not dict:
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    return document


def signature_name(document: dict[str, Any]) -> str:
    """The signature that a request names, "" for none. Raises ServingError if it is not a string."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise invalid(
            f"JSON Value: {shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def shown(value: Any) -> str:
    """A JSON value as error texts show it: objects indented, lists on one line, long ones cut."""
    encoder = json.JSONEncoder(indent=4 if type(value) is dict else None)
    text = "".join(islice(encoder.iterencode(value), _SHOWN_PIECES))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
