"""Proves that an exported model answers made-up records as Keras' `predict` does, in the export process."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfs_proxy.tools.export.keras_files import Exported
from tfs_proxy.values.errors import ExportError
from tfs_proxy.values.signature import DEFAULT_SIGNATURE

MOST_SECONDS = 60
RECORDS = 2
BATCHES = 2
REPETITIONS = 8
"""Enough for a coin thrown for each record to show that it is one."""

UNKNOWN_SIZES = (32, 64, 128, 256)
"""Sizes to try, ascending: a network that shrinks pictures refuses small ones."""

HALF = "float16"
"""Part of the name of each type, and each policy, of 16 bits."""

TOLERANCE = 1e-3
TOLERANCE_OF_HALVES = 1e-2
TEXT = "SUO"
"""Kinds of numpy's types that have no numbers."""

WORDS = ("first second", "second third")
SHOWN_CHARACTERS = 300
NOT_COMPARED = "The exported answers were not compared with those of predict"
WHAT_TO_DO = (
    "Save the model without what is for training alone, or export it in the program that made it, with "
    "keras.export.ExportArchive and an endpoint that calls model(x, training=False), and pack that folder."
)

Answers = Mapping[str, Any]
"""Tensors or arrays by output."""


def compare(exported: Exported, folder: Path) -> tuple[str, ...]:
    """Compares the SavedModel in ``folder`` with the model that it was made from.

    Returns a sentence for what could not be compared. Raises ExportError if an output differs by more than
    the tolerance. The thread that compares is left behind after `MOST_SECONDS`.
    """
    comparing = ThreadPoolExecutor(1).submit(lambda: dict.fromkeys(_not_compared(exported, folder)))
    try:
        reasons = tuple(comparing.result(MOST_SECONDS))
    except ExportError:
        raise
    except TimeoutError:
        reasons = (f"that takes over {MOST_SECONDS} seconds",)
    except Exception as error:  # noqa: BLE001 - a model may refuse made-up records
        reasons = (" ".join(str(error).split())[:SHOWN_CHARACTERS],)
    return tuple(f"{NOT_COMPARED}: {reason}." for reason in reasons)


def _not_compared(exported: Exported, folder: Path) -> Iterator[str]:
    """Yields reasons. Raises ExportError, and what the model raises."""
    model = exported.model
    specs = exported.specs
    loaded = tf.saved_model.load(str(folder))
    tolerance = TOLERANCE_OF_HALVES if HALF in str(model.get_config()) else TOLERANCE
    fixed = next((tensor.shape[0] for tensor in model.inputs if tensor.shape[0]), None)
    if model.jit_compile:
        model.jit_compile = False  # XLA would compile for longer than all the rest takes

    def predict(batch: Any) -> Answers:
        return exported.by_output(model.predict_on_batch(batch))

    def serve(batch: Any) -> Answers:
        tensors = zip(tf.nest.flatten(specs), tf.nest.flatten(batch), strict=True)
        answers: Answers = loaded.signatures[DEFAULT_SIGNATURE](**{spec.name: each for spec, each in tensors})
        return answers

    for size in UNKNOWN_SIZES:
        with suppress(Exception):
            predict(_made(specs, fixed or RECORDS, size, 0))
            break
    for seed in range(BATCHES):
        batch = _made(specs, fixed or RECORDS, size, seed)
        wanted = predict(batch)
        yield from (f"output {name} has no number" for name, values in wanted.items() if _is_blank(values))
        asked = [(batch, wanted), (batch, wanted)]
        if fixed is None:
            record = tf.nest.map_structure(lambda tensor: tensor[:1], batch)
            asked.append((record, {name: values[:1] for name, values in wanted.items()}))
        for tensors, answers in asked:
            difference = _difference(answers, serve(tensors), tolerance)
            if difference is None:
                continue
            again = (_difference(answers, predict(tensors), tolerance) for _ in range(REPETITIONS))
            if itself := next(filter(None, again), None):
                yield f"predict differs from itself: {itself}"
                return
            raise ExportError(
                f"The exported model does not answer as predict does: {difference}. {WHAT_TO_DO}"
            )


def _made(specs: Any, records: int, size: int, seed: int) -> Any:
    """A batch for these inputs, the same for the same ``seed``; ``size`` stands for all that are unknown."""
    numbers = np.random.default_rng(seed)

    def values(spec: tf.TensorSpec) -> tf.Tensor:
        shape = [records, *(each or size for each in spec.shape[1:])]
        if spec.dtype == tf.string:
            return tf.constant(numbers.choice(WORDS, shape))
        is_integer = spec.dtype.is_integer or spec.dtype.is_bool
        return tf.cast(numbers.integers(0, 2, shape) if is_integer else numbers.random(shape), spec.dtype)

    return tf.nest.map_structure(values, specs)


def _is_blank(values: Any) -> bool:
    return values.dtype.kind not in TEXT and not np.isfinite(values).any()


def _difference(wanted: Answers, answers: Answers, tolerance: float) -> str | None:
    """Describes the first output that differs by more than ``tolerance`` of its largest value."""
    for name in wanted:
        first = np.asarray(wanted[name])
        second = np.asarray(answers[name])
        if first.shape != second.shape:
            return f"output {name} has the shape {second.shape} instead of {first.shape}"
        if first.dtype.kind in TEXT:
            second = first == second
            first = np.ones(first.shape)
        first = first.astype(np.complex128)
        second = second.astype(np.complex128)
        largest = np.max(np.abs(first), initial=0, where=np.isfinite(first))
        apart = ~np.isclose(second, first, rtol=0, atol=tolerance * largest, equal_nan=True)
        if apart.any():
            furthest = np.max(np.abs(first[apart] - second[apart]))
            return f"output {name} is up to {furthest:.3g} away, where its largest value is {largest:.3g}"
    return None
