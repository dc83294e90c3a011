"""Feet in, a number a line; metres out, by version 1 of `rounding`."""

import json
from typing import BinaryIO

import rounding

from tfs_proxy import Context, ModelResponse


def input_handler(data: BinaryIO, context: Context) -> str:  # noqa: ARG001
    """The model server's JSON."""
    return json.dumps({"instances": [float(line) for line in data]})


def output_handler(response: ModelResponse, context: Context) -> tuple[str, str]:  # noqa: ARG001
    """A sentence a line."""
    numbers = response.json()["predictions"]
    lines = [f"{rounding.rounded(number)} m (rounding {rounding.VERSION})" for number in numbers]
    return "\n".join(lines), "text/plain"
