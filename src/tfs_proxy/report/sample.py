"""Sample values for the inputs of a model, made of its signature: for a first request and for documents."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfs_proxy.signature import Signature, TensorSpec

FLOATS = frozenset({"DT_HALF", "DT_BFLOAT16", "DT_FLOAT", "DT_DOUBLE"})


SAMPLE_TEXT = "a"


def sample_inputs(signature: Signature, string: Any = SAMPLE_TEXT) -> Mapping[str, Any]:
    """TF Serving's JSON with one record, in which every string is ``string``, as JSON has it.

    Rows if all inputs have the same number of records and all outputs have some, else columns.
    """
    specs = signature.inputs
    values = {name: sample_value(sample_sizes(spec), spec.dtype, string) for name, spec in specs.items()}
    records = {sample_sizes(spec)[:1] for spec in specs.values()}
    if not answers_in_rows(signature) or len(records) != 1 or records == {()}:
        return {"inputs": _only(values)}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return {"instances": [_only(row) for row in rows]}


def answers_in_rows(signature: Signature) -> bool:
    """Whether every output can have a value for each record, judging by its shape."""
    return all(spec.shape != () for spec in signature.outputs.values())


def sample_sizes(spec: TensorSpec) -> tuple[int, ...]:
    """The shape to send: unknown sizes are 1, an unknown rank is a vector."""
    shape = (None,) if spec.shape is None else spec.shape
    return tuple(1 if size is None else size for size in shape)


def sample_value(sizes: Sequence[int], dtype: str, string: Any = SAMPLE_TEXT) -> Any:
    """Nested lists of these sizes, of a value of TensorFlow's type ``dtype``."""
    if sizes:
        return [sample_value(sizes[1:], dtype, string)] * sizes[0]
    if dtype == "DT_STRING":
        return string
    if dtype == "DT_BOOL":
        return True
    return 1.0 if dtype in FLOATS else 1


def _only(named: Mapping[str, Any]) -> Any:
    """The value alone if there is a single input, else values by name."""
    return next(iter(named.values())) if len(named) == 1 else named
