"""Standardizes columns in a graph: what `added_signatures` puts before a network that reads tables."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfs_proxy.errors import ExportError
from tfs_proxy.savedmodel_export.preprocessing import Standardization

SAMPLE_ROWS = 2

Tensors = Mapping[str, tf.Tensor]
Specs = Mapping[str, tf.TensorSpec]


class TableStage:
    """``(x - mean) / std`` for the named inputs of a network; the others pass as they are.

    Raises ExportError if an input is not there, or has another number of columns.
    """

    def __init__(self, by_input: Mapping[str, Standardization], specs: Specs) -> None:
        self.signature = specs
        self._by_input = by_input
        self._constants = {name: _constants(name, each, specs) for name, each in by_input.items()}

    def tensors(self, inputs: Tensors) -> Tensors:
        """The network's inputs."""
        return {name: self._standardized(name, tensor) for name, tensor in inputs.items()}

    def sample(self) -> Tensors | None:
        """Two rows around the means; None if the signature leaves open how large a row is."""
        if any(None in (spec.shape[1:] if spec.shape.rank else [None]) for spec in self.signature.values()):
            return None
        return {name: self._sample(name, spec) for name, spec in self.signature.items()}

    def _standardized(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        if name not in self._constants:
            return tensor
        mean, std = self._constants[name]
        return (tensor - mean) / std

    def _sample(self, name: str, spec: tf.TensorSpec) -> tf.Tensor:
        shape = [spec.shape[0] or SAMPLE_ROWS, *spec.shape[1:]]
        if not spec.dtype.is_floating:
            return tf.zeros(shape, spec.dtype)
        rows = tf.cast(tf.random.stateless_normal(shape, (0, 1)), spec.dtype)
        mean, std = self._constants.get(name, (0, 1))
        return rows * std + mean


def _constants(name: str, each: Standardization, specs: Specs) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and standard deviation in the input's own type."""
    if name not in specs:
        raise ExportError(
            f"--standardize: the model has no input {name}; it has {', '.join(sorted(specs)) or 'none'}."
        )
    dtype = specs[name].dtype
    if not dtype.is_floating:
        raise ExportError(f"--standardize: input {name} takes {dtype.name}; only floats are standardized.")
    _check_columns(name, each, specs[name].shape)
    with np.errstate(over="ignore"):
        mean, std = np.array(each.mean, dtype.as_numpy_dtype), np.array(each.std, dtype.as_numpy_dtype)
    if not np.all(np.isfinite(mean) & np.isfinite(std) & (std > 0)):
        raise ExportError(
            f"--standardize: {name} has a number that is too large or too small for {dtype.name}."
        )
    return tf.constant(mean), tf.constant(std)


def _check_columns(name: str, each: Standardization, shape: tf.TensorShape) -> None:
    if shape.rank is None:
        raise ExportError(
            f"--standardize: the shape of input {name} is unknown: save the model with its columns."
        )
    columns = shape[-1] if shape.rank > 1 else 1
    numbers = len(each.mean)
    if columns is None and numbers > 1:
        raise ExportError(
            f"--standardize: {name} has {numbers} means, and the input any number of columns: give one, or "
            "save the model with its columns."
        )
    if numbers not in (1, columns):
        raise ExportError(f"--standardize: {name} has {numbers} means, and the input {columns} columns.")
