"""Signatures of models for predict, by what their inputs take."""

from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec

Shape = tuple[int | None, ...] | None


def signature_of(method: str = PREDICT_METHOD, **inputs: str | tuple[str, Shape]) -> Signature:
    """Make a default signature; an input without a shape takes any."""
    named = {name: (given, None) if isinstance(given, str) else given for name, given in inputs.items()}
    specs = {name: TensorSpec(name, *each) for name, each in named.items()}
    return Signature("serving_default", method, specs, {})


def floats(*shape: int | None) -> Signature:
    """Of one input x; without a shape it takes any."""
    return signature_of(x=("DT_FLOAT", shape or None))
