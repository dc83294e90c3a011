"""Signature of a model as plain values, without tensorflow."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.values.errors import BadInput, from_client

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"
DEFAULT_SIGNATURE = "serving_default"
NAME_ONE = (
    " Name one: tfs-signature-name=NAME in X-Amzn-SageMaker-Custom-Attributes, the member "
    '"signature_name" of TensorFlow Serving\'s JSON, the parameter "signature" at /v2, or --signature NAME '
    "of ask, check and transform."
)


class TensorSpec(Struct, frozen=True):
    """One input or output of a signature, by the name that clients use: the signature's alias.

    ``tensor`` is its name in the graph, where that was read. ``dtype`` is TensorFlow's name for it
    (``DT_FLOAT``); ``shape`` is None if even the rank is unknown, as it is if the signature has no shape
    at all, and a dimension in it is None if its size is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    tensor: str = ""


class Signature(Struct, frozen=True):
    """One entry of a SavedModel's signature_def: its method and its tensors by alias."""

    name: str
    method: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


class Target(Struct, frozen=True):
    """Model, version and signature that one request is for (TF Serving's ModelSpec and method).

    ``version`` and ``label`` exclude each other; neither means the newest version. ``signature``
    None means `default_signature`. ``method`` is predict, classify or regress.
    """

    model: str
    version: int | None = None
    label: str | None = None
    signature: str | None = None
    method: str = "predict"

    def by_signature(self, signature: Signature) -> "Target":
        """The target with the name of the signature that it means, unless model servers know it."""
        is_known = signature.name == (self.signature or DEFAULT_SIGNATURE)
        return self if is_known else replace(self, signature=signature.name)


def default_signature(known: Mapping[str, Signature]) -> Signature | None:
    """Signature of a request that names none: ``serving_default``, else the only one that can be asked.

    That is one with inputs and outputs; of several, the only one that takes more than single values. None if
    there is no such one.
    """
    if DEFAULT_SIGNATURE in known:
        return known[DEFAULT_SIGNATURE]
    usable = [each for each in known.values() if each.inputs and each.outputs]
    of_records = [each for each in usable if any(spec.shape != () for spec in each.inputs.values())]
    found = of_records or usable
    return found[0] if len(found) == 1 else None


def signature_of(known: Mapping[str, Signature], target: Target) -> Signature:
    """Signature that the target means; raises BadInput that lists those that are ``known``."""
    name = target.signature
    signature = known.get(name) if name else default_signature(known)
    if signature is None:
        raise BadInput(
            f'The model {target.model} has no signature "{from_client(name or DEFAULT_SIGNATURE)}"; '
            f"its signatures are {', '.join(sorted(known)) or 'none'}.{'' if name else NAME_ONE}"
        )
    return signature
