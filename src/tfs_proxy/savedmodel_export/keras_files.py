"""Loads a .keras or .h5 file in safe mode and exports it as a SavedModel; runs in the export process."""

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tfs_proxy.errors import ExportError
from tfs_proxy.savedmodel_export.export_request import GIGABYTE, ExportReport, ExportRequest
from tfs_proxy.savedmodel_export.keras_archive import KerasDescription, read_keras_archive
from tfs_proxy.savedmodel_export.keras_config import custom_classes, what_runs
from tfs_proxy.savedmodel_export.keras_hdf5 import check_weights, read_hdf5_model
from tfs_proxy.savedmodel_export.keras_names import export_named
from tfs_proxy.savedmodel_export.reproducible import in_the_same_order, name_by_contents

MEMORY_BYTES = 6 * GIGABYTE
MEMORY_FACTOR = 10
"""What the process may take: a fixed part for TensorFlow, and this many times the file's size."""

SHOWN_CHARACTERS = 500
NAMES_SHOWN = 3
OLD = 2
"""The generation of Keras whose files tf-keras reads."""

ALLOW = "If you trust whoever made it, --allow-code lets it run that code."
EXPORT_YOURSELF = "write model.export(FOLDER) in the program that defines them, and pack the folder"
OUT_OF_MEMORY = "ResourceExhaustedError"
UNKNOWN_NAMES = ("Could not locate", "Unknown layer", "Unknown object", "cannot be imported")


def export(request: ExportRequest) -> ExportReport:
    """Write the SavedModel of a Keras file. Raises ExportError with what to do."""
    path = request.source
    _limit_memory(path)
    description = _described(request)
    _refuse_code(path, description, request)
    keras, name = _keras(description)
    with _explained(path, description, name, keras.__version__):
        keras.utils.set_random_seed(0)  # layers such as Dropout have a state that the file may not have
        model = keras.models.load_model(str(path), compile=False, safe_mode=not request.allow_code)
        _refuse_unbuilt(path, model)
        with in_the_same_order():
            report = export_named(keras, model, request.target)
        name_by_contents(request.target)
    return replace(report, exporter=f"{name} {keras.__version__}")


def _limit_memory(path: Path) -> None:
    """A configuration of a few bytes can ask for terabytes of weights: that must end this process alone."""
    most = MEMORY_BYTES + MEMORY_FACTOR * (path.stat().st_size if path.is_file() else 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def _described(request: ExportRequest) -> KerasDescription:
    path = request.source
    if path.suffix == ".keras":
        description = read_keras_archive(path, request.max_bytes)
        check_weights(path, request.max_bytes)
        return description
    return read_hdf5_model(path, request.max_bytes)


def _refuse_code(path: Path, description: KerasDescription, request: ExportRequest) -> None:
    reason = None if request.allow_code else what_runs(description.config)
    if reason is not None:
        raise ExportError(f"{path} is refused: {reason}. {ALLOW}")
    classes = sorted(set(custom_classes(description.config)))
    if classes:
        names = ", ".join(classes[:NAMES_SHOWN]) + (
            f" and {len(classes) - NAMES_SHOWN} more" if len(classes) > NAMES_SHOWN else ""
        )
        raise ExportError(
            f"{path} can't be loaded without the code of its own classes ({names}), which is not in the "
            f"file: {EXPORT_YOURSELF}."
        )


def _keras(description: KerasDescription) -> tuple[Any, str]:
    """The library of the file's generation, if it is installed, and its name.

    Keras 3 reads many files of Keras 2, so it is tried if tf-keras is not there.
    """
    if description.generation == OLD and find_spec("tf_keras"):
        import tf_keras

        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        return tf_keras, "tf-keras"
    import keras  # type: ignore[import-untyped]

    return keras, "Keras"


@contextmanager
def _explained(path: Path, description: KerasDescription, library: str, version: str) -> Iterator[None]:
    """What Keras raises becomes a sentence that says what to do."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or type(error).__name__ == OUT_OF_MEMORY:
            raise ExportError(
                f"{path} is refused: its model needs far more memory than a file of its size should."
            ) from None
        text = " ".join(str(error).split())[:SHOWN_CHARACTERS]
        advice = _advice(text, description, version)
        raise ExportError(f"{path} can't be exported by {library} {version}: {text} {advice}") from error


def _advice(text: str, description: KerasDescription, version: str) -> str:
    if description.generation == OLD and not find_spec("tf_keras"):
        return f"It was saved by Keras {description.version or 2}: pip install tf-keras."
    if description.version and description.version != version:
        return f"It was saved by Keras {description.version}: try it with that version."
    if "is not a valid scope name" in text:
        return "That is the name of a layer: set its name to letters, digits and _, and save the model again."
    if any(words in text for words in UNKNOWN_NAMES):
        return (
            f"If it is an .h5 file of Keras 3, save it as .keras; if it has classes of its own, "
            f"{EXPORT_YOURSELF}."
        )
    return "Export it where it was made with model.export(FOLDER), and pack the folder."


def _refuse_unbuilt(path: Path, model: Any) -> None:
    if not model.built or not getattr(model, "inputs", True):
        raise ExportError(
            f"{path} has a model without input shapes: begin it with keras.Input(SHAPE) or call it once, "
            "and save it again."
        )
