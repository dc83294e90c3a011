"""JSON lines in, JSON lines out, as they are made: the first answers arrive while the last are computed."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

import numpy as np

from tfs_proxy import Context, HTTPError, Response

LINES_AT_A_TIME = 100


def handler(data: BinaryIO, context: Context) -> Response:
    """One number a line."""
    return Response(predictions(data, context), "application/jsonlines")


def predictions(data: BinaryIO, context: Context) -> Iterator[str]:
    """One answer a line; each hundred lines are one call of the model."""
    while lines := list(islice(data, LINES_AT_A_TIME)):
        try:
            numbers = np.array([float(line) for line in lines], np.float32)
        except ValueError as error:
            raise HTTPError(400, f"Each line must be a number: {error}.") from error
        outputs = context.predict({"x": numbers})
        yield "".join(f"{json.dumps(number)}\n" for number in outputs["y"].tolist())
