"""Records in the shapes that a signature declares, and the sentence about tensors that have others.

TensorFlow Serving takes many shapes that a signature does not declare, in its own form here, too, and from
scripts. Bodies that are converted must have the sizes that are declared behind the first.
"""

import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy.typing as npt

from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS

_WIDEST_ITEM_BYTES = 16

Declared = Sequence[int | None] | None
"""Shape of a signature: None for an unknown rank, and in it None for an unknown size."""


PASSES = (
    " If the model takes more than it declares, send TensorFlow Serving's form "
    '({"instances": [...]}), which is passed on in any shape.'
)
"""End of a refusal for a shape alone."""


def fits(shape: Sequence[int], declared: Declared) -> bool:
    """True if ``declared`` allows ``shape``."""
    if declared is None:
        return True
    return len(shape) == len(declared) and all(
        wanted in {None, size} for size, wanted in zip(shape, declared, strict=True)
    )


def fitted(batch: Batch, signature: Signature) -> Batch:
    """Reshape records to the declared shapes: `listed`, or one record as it is if only that fits.

    The latter is for inputs that leave no size open for records; if all are such, the answer has no axis of
    records either. Raises BadInput if arrays have more dimensions than those inputs declare.
    """
    batch = listed(batch, signature)
    whole = {name: spec for name, spec in signature.inputs.items() if not has_records(spec)}
    bare = {}
    for name, spec in whole.items():
        array = batch.inputs[name]
        if batch.records == 1 and not fits(array.shape, spec.shape) and fits(array.shape[1:], spec.shape):
            bare[name] = array.reshape(array.shape[1:])
        elif array.ndim > len(spec.shape or ()):
            if batch.records > 1:
                raise one_record_only(spec, f"{batch.records} records")
            raise BadInput(_misfit(spec.name, array.shape[1:], spec.shape or ()) + PASSES, (spec.name,))
    return Batch({**batch.inputs, **bare}, 1, len(whole) == len(batch.inputs)) if bare else batch


def listed(batch: Batch, signature: Signature) -> Batch:
    """Make each value a list of one where the signature has those: ``[?, 1]``."""
    lists = {}
    for name, array in batch.inputs.items():
        declared = signature.inputs[name].shape or ()
        shape = array.shape + (1,) * (len(declared) - array.ndim)
        if shape != array.shape and fits(shape, declared):
            lists[name] = array.reshape(shape)
    return Batch({**batch.inputs, **lists}, batch.records) if lists else batch


def has_records(spec: TensorSpec) -> bool:
    """True if a first dimension may count records: it is open, or the rank is unknown."""
    return spec.shape is None or spec.shape[:1] == (None,)


def held(batch: Batch, signature: Signature) -> Batch:
    """Return the batch; raises BadInput for an input that declares other sizes behind the first.

    One that declares none takes arrays of every rank, as it does in AWS's container.
    """
    for name, spec in signature.inputs.items():
        sizes = (spec.shape or ())[1:]
        shape = batch.inputs[name].shape
        if any(size is not None for size in sizes) and not fits(shape[1:], sizes):
            raise BadInput(_misfit(name, shape, spec.shape or ()) + PASSES, (name,))
    return batch


def takes_one(spec: TensorSpec) -> bool:
    """True if a record is one value: for ``[?, 1]``, and for strings ``[?]``."""
    return spec.shape == (None, 1) or (spec.dtype, spec.shape) == ("DT_STRING", (None,))


def one_record_only(spec: TensorSpec, given: str) -> BadInput:
    """Error for a body of several records and an input without an axis that counts them."""
    return BadInput(
        f'The model takes one record a request, since its input "{spec.name}" has shape '
        f"{shape_text(spec.shape or ())}; the body has {given}.",
        (spec.name,),
    )


def is_possible(shape: Sequence[int]) -> bool:
    """True if numpy can have an array of ``shape``, whatever its type; it counts sizes next to a 0, too."""
    if len(shape) > MAX_DIMENSIONS:  # the product of many sizes would take hours
        return False
    items = prod(size for size in shape if size)
    return items * _WIDEST_ITEM_BYTES <= sys.maxsize


def shape_text(declared: Sequence[int | None]) -> str:
    """Write a shape for people: ``[?, 3]``."""
    return "[" + ", ".join("?" if size is None else str(size) for size in declared) + "]"


def misfits(inputs: Mapping[str, npt.NDArray[Any]], signature: Signature) -> Mapping[str, str]:
    """Sentences by name for the inputs whose shape the signature does not declare."""
    declared = {name: spec.shape for name, spec in signature.inputs.items() if spec.shape is not None}
    return {
        name: _misfit(name, inputs[name].shape, shape)
        for name, shape in declared.items()
        if name in inputs and not fits(inputs[name].shape, shape)
    }


def _misfit(name: str, shape: Sequence[int], declared: Sequence[int | None]) -> str:
    return f'The input "{name}" has shape {shape_text(shape)}, expected {shape_text(declared)}.'
