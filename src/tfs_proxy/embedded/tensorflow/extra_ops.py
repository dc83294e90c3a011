"""Ops that tensorflow_model_server has built in and TensorFlow lacks, loaded when a model asks for one.

TF Serving links the ops of TensorFlow Text, and since 2.11 those of TensorFlow Decision Forests (its
SUPPORTED_TENSORFLOW_OPS). Here they come from the packages of these projects, if they are installed:
only their libraries of ops are loaded, nothing of their Python.
"""

import importlib.metadata
import importlib.util
import logging
import threading
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tfs_proxy.embedded.tensorflow import runtime

log = logging.getLogger(__name__)


class _Package(NamedTuple):
    """A project of ops: its distribution, its package, and patterns of the libraries in it."""

    distribution: str
    module: str
    libraries: tuple[str, ...]


PACKAGES = (
    _Package("tensorflow-text", "tensorflow_text", ("python/ops/_*.so", "python/metrics/_*.so")),
    _Package(
        "tensorflow-decision-forests",
        "tensorflow_decision_forests",
        ("tensorflow/ops/inference/inference.so",),
    ),
)

_loading = threading.Lock()
_left = list(PACKAGES)


def provide(op_types: Collection[str]) -> None:
    """Register what is missing of ``op_types``, as far as a package that is installed has it."""
    with _loading:
        while _left and not runtime.are_registered(op_types):
            _load(_left.pop(0))


def _load(package: _Package) -> None:
    spec = importlib.util.find_spec(package.module)
    if spec is None or spec.origin is None:
        return
    version = _version(package.distribution)
    folder = Path(spec.origin).parent
    libraries = [path for pattern in package.libraries for path in sorted(folder.glob(pattern))]
    try:
        for library in libraries:
            runtime.load_library(str(library))
    except runtime.OpError as error:
        log.warning(
            "%s %s does not fit TensorFlow %s, so its ops are missing: %s",
            package.distribution,
            version,
            runtime.VERSION,
            error.message,
        )
    else:
        log.info("Loaded the ops of %s %s", package.distribution, version)


def _version(distribution: str) -> str:
    """The version of what is installed; of another build of it (a nightly one) that is not known."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(of unknown version)"
