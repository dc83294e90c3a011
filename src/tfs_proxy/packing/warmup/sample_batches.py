"""A signature -> arrays that its model takes, in batches of each size: what requests are made of."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.archive.graphs.graph_inputs import GraphInputs
from tfs_proxy.batch import BYTES, Batch
from tfs_proxy.errors import BadInput, SettingsError
from tfs_proxy.openapi.sample_records import sample_string
from tfs_proxy.packing.warmup.options import Fill, WarmupOptions
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import array_type

MOST_VALUES = 256 * 1024 * 1024
"""Values of one input in one batch."""


def sample_batches(
    signature: Signature, graph: GraphInputs, options: WarmupOptions, batch_sizes: tuple[int, ...]
) -> Iterator[Batch]:
    """A batch of each size; raises SettingsError for a signature that none can be made for."""
    string = sample_string(signature, graph)
    if string is None:
        raise SettingsError(
            f"The signature {signature.name} takes pictures of one size, which its graph does not tell: give "
            "requests with --request."
        )
    random = np.random.default_rng(0)  # the same requests each time
    for records in batch_sizes:
        inputs = {
            name: _array(name, spec, _sizes(spec, records, options.open_size), string, options.fill, random)
            for name, spec in signature.inputs.items()
        }
        yield Batch(inputs, records)


def _sizes(spec: TensorSpec, records: int, open_size: int) -> tuple[int, ...]:
    """The shape of a batch: an unknown rank is a vector."""
    shape = (None,) if spec.shape is None else spec.shape
    return tuple(
        size if size is not None else records if axis == 0 else open_size for axis, size in enumerate(shape)
    )


def _array(
    name: str,
    spec: TensorSpec,
    sizes: tuple[int, ...],
    string: bytes,
    fill: Fill,
    random: np.random.Generator,
) -> npt.NDArray[Any]:
    if np.prod(sizes, dtype=float) > MOST_VALUES:
        raise SettingsError(f"The input {name} of shape {list(sizes)} is too large for a request.")
    try:
        dtype = array_type(spec)
    except BadInput as error:
        raise SettingsError(f"No request can be made for the input {name}: {error}") from None
    if dtype == BYTES:
        return np.full(sizes, string, BYTES)
    if fill is Fill.ZEROS:
        return np.zeros(sizes, dtype)
    # Whole numbers are often places in a table: small ones are in each.
    values = random.random(sizes) if dtype.kind in "fc" else random.integers(0, 2, sizes)
    return np.asarray(values, dtype)
