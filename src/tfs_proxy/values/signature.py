"""Signature of a model as plain values, without tensorflow."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct, field

from tfs_proxy.values.errors import BadInput, from_client
from tfs_proxy.values.names import identifier

Given = TypeVar("Given")

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"
DEFAULT_SIGNATURE = "serving_default"


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
    """One entry of a SavedModel's signature_def."""

    name: str
    """Name of the entry, such as ``serving_default``."""

    method: str
    """Method of TF Serving that it answers, as its ``method_name`` says."""

    inputs: Mapping[str, TensorSpec]
    """Tensors that it takes, by alias."""

    outputs: Mapping[str, TensorSpec]
    """Tensors that it gives, by alias."""

    own_names: Mapping[str, str] = field(default_factory=dict)
    """Aliases of inputs by the author's own names for them, where those differ."""

    def alias(self, name: str) -> str:
        """The input that the model's author calls ``name``, which is the graph's name first; else ``name``.

        An archive that has no ``own_names`` may be older: then the names of several inputs are taken as what
        `pack` would make of them.
        """
        guessed = identifier(name) if not self.own_names and len(self.inputs) > 1 else name
        alias = name if name in self.inputs else self.own_names.get(name, guessed)
        return alias if alias in self.inputs else name

    def by_alias(self, given: Mapping[str, Given]) -> dict[str, Given]:
        """``given`` by `alias`; raises BadInput if two keys become one."""
        named = {self.alias(name): value for name, value in given.items()}
        if len(named) < len(given):
            raise BadInput(
                f"Two of {from_client(', '.join(given))} are names of one input: send one of them."
            )
        return named


class Target(Struct, frozen=True):
    """Model, version and signature that one request is for (TF Serving's ModelSpec and method)."""

    model: str
    """Name of the model."""

    version: int | None = None
    """Version number; None for the newest, unless there is a label."""

    label: str | None = None
    """Version label, which excludes a version; None without one."""

    signature: str | None = None
    """Name of the signature; None for `default_signature`."""

    method: str = "predict"
    """Method of TF Serving: predict, classify or regress."""


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
