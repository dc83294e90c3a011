"""Metres in, feet out, both as a JSON number, by version 2 of `rounding`."""

import json
from typing import BinaryIO

import numpy as np
import rounding

from tfs_proxy import Context


def handler(data: BinaryIO, context: Context) -> tuple[str, str]:
    """One call of the model."""
    metres = np.array([json.load(data)], np.float32)
    feet = float(context.predict({"x": metres})["y"][0])
    return json.dumps({"feet": rounding.rounded(feet, 1), "rounding": rounding.VERSION}), "application/json"
