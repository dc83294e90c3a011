"""Signature of a model as plain values, without tensorflow."""

from collections.abc import Mapping

from msgspec import Struct

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
    """One entry of a SavedModel's signature_def: its method and its tensors by alias."""

    name: str
    method: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


class Target(Struct, frozen=True):
    """Model, version and signature that one request is for (TF Serving's ModelSpec and method).

    ``version`` and ``label`` exclude each other; neither means the newest version. ``signature``
    None means ``serving_default``. ``method`` is predict, classify or regress.
    """

    model: str
    version: int | None = None
    label: str | None = None
    signature: str | None = None
    method: str = "predict"
