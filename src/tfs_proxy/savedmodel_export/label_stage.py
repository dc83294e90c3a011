"""Turns a network's scores into labels and probabilities: what `added_signatures` puts behind a network."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfs_proxy.errors import ExportError
from tfs_proxy.savedmodel_export.preprocessing import DEFAULT_TOP, Preprocessing

LABELS, PROBABILITIES = "labels", "probabilities"
RANK = 2
TOLERANCE = 1e-2

Tensors = Mapping[str, tf.Tensor]
Specs = Mapping[str, tf.TensorSpec]


class LabelStage:
    """The most probable classes of each row, by their names; ``outputs`` are the network's.

    Without labels and ``top`` the network's outputs stay as they are, besides the softmax. Raises
    ExportError if the output does not fit the labels.
    """

    def __init__(self, preprocessing: Preprocessing, outputs: Specs) -> None:
        self._softmax = preprocessing.softmax
        self._ranks = bool(preprocessing.labels) or preprocessing.top is not None
        self._name = next(iter(outputs))
        self._asked = preprocessing.top
        if not self._ranks and not self._softmax:
            return
        if len(outputs) != 1:
            raise ExportError(
                f"--labels, --top and --softmax need a model of one output; this one has "
                f"{', '.join(sorted(outputs))}."
            )
        spec = outputs[self._name]
        _refuse_scalars(self._name, spec)
        if not self._ranks:
            return
        self._classes = _classes(self._name, spec, preprocessing.labels)
        self._top = min(preprocessing.top or DEFAULT_TOP, self._classes)
        self._labels = tf.constant(preprocessing.labels) if preprocessing.labels else None

    def tensors(self, answer: Tensors) -> Tensors:
        """What the new signature answers, for what the network answers."""
        if not self._ranks and not self._softmax:
            return answer
        scores = answer[self._name]
        scores = tf.nn.softmax(scores) if self._softmax else scores
        if not self._ranks:
            return {self._name: scores}
        values, classes = tf.math.top_k(tf.ensure_shape(scores, [None, self._classes]), self._top)
        labels = tf.cast(classes, tf.int64) if self._labels is None else tf.gather(self._labels, classes)
        return {LABELS: labels, PROBABILITIES: values}

    def warnings(self, answer: Tensors) -> Sequence[str]:
        """What looks wrong in the network's answer to a sample.

        Raises ExportError if it has another number of classes than there are labels.
        """
        warnings: list[str] = []
        if self._ranks:
            _check_count(self._name, answer[self._name].shape, self._classes)
        if self._ranks and (self._asked or 0) > self._classes:
            warnings.append(
                f"--top {self._asked}: the model has {self._classes} classes, and answers as many."
            )
        if self._ranks or self._softmax:
            warnings += filter(None, [self._doubt(np.asarray(answer[self._name], np.float64))])
        return warnings

    def _doubt(self, scores: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> str | None:
        sums = scores.sum(axis=-1)
        furthest = sums.flat[np.argmax(np.abs(sums - 1))]
        are_probabilities = scores.min() >= 0 and abs(furthest - 1) <= TOLERANCE
        if self._softmax and are_probabilities:
            return (
                f"--softmax: the rows of output {self._name} sum to 1 on a sample, so they may be "
                "probabilities already, which a softmax distorts: leave the flag out then."
            )
        if self._softmax or are_probabilities:
            return None
        return (
            f"The rows of output {self._name} are not probabilities on a sample (the lowest number is "
            f"{scores.min():.3g}, one row sums to {furthest:.3g}): if they are logits, add --softmax."
        )


def _refuse_scalars(name: str, spec: tf.TensorSpec) -> None:
    if not spec.dtype.is_floating or spec.shape.rank not in (RANK, None):
        raise ExportError(
            f"--labels, --top and --softmax: output {name} is {spec.dtype.name} of the shape "
            f"{spec.shape}, not a row of floats for each picture or record."
        )


def _classes(name: str, spec: tf.TensorSpec, labels: Sequence[str]) -> int:
    """How many there are; the signature may leave it open if there are labels."""
    classes: int | None = spec.shape[-1] if spec.shape.rank == RANK else None
    if classes is None and not labels:
        raise ExportError(
            f"--top and --softmax: how many classes output {name} has is unknown; give --labels."
        )
    if labels and classes is not None:
        _check_count(name, spec.shape, len(labels))
    return len(labels) or classes or 0


def _check_count(name: str, shape: tf.TensorShape, labels: int) -> None:
    if shape.rank != RANK:
        raise ExportError(
            f"--labels and --top: output {name} answers the shape {shape}, not rows of classes."
        )
    if shape[-1] != labels:
        hint = " (a sigmoid's one column has no label for the other class)" if shape[-1] == 1 else ""
        raise ExportError(f"--labels has {labels} labels, and output {name} {shape[-1]} classes{hint}.")
