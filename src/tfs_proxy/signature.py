"""A model's signature as plain values: what every room knows of a model, without tensorflow."""

from collections.abc import Mapping
from dataclasses import dataclass

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"
DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named input or output of a signature.

    ``dtype`` is TensorFlow's name for it (``DT_FLOAT``); ``shape`` is None if even the rank is unknown,
    as it is if the signature has no shape at all, and a dimension in it is None if its size is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class Signature:
    """One entry of a SavedModel's signature_def: its method and its tensors by alias."""

    name: str
    method: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


@dataclass(frozen=True, slots=True)
class Target:
    """Which model, version and signature one request is for (TF Serving's ModelSpec and method).

    ``version`` and ``label`` exclude each other; neither means the newest version. ``signature``
    None means ``serving_default``. ``method`` is predict, classify or regress.
    """

    model: str
    version: int | None = None
    label: str | None = None
    signature: str | None = None
    method: str = "predict"
