"""Advice for a model that can't be served: the sentences behind TensorFlow's own words."""

from collections.abc import Sequence
from pathlib import Path

from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.tensorflow import runtime
from tfs_proxy.wire.grpc_codes import GrpcCode

_NO_VARIABLE = "Could not find variable"
_NO_VALUE = "Attempting to use uninitialized value"

_UNTRACKED = (
    "The SavedModel was saved without this variable. That happens if a Keras 3 model is an "
    "attribute of a tf.Module: tf.saved_model.save(module) does not see its weights. Save it "
    "with model.export(path), or with keras.export.ExportArchive if it needs signatures of its own."
)
_NO_INDEX = (
    "The SavedModel has no variables/variables.index, so it was loaded without any variable. Copy the whole "
    "folder, variables and assets included."
)

_SERIES = runtime.VERSION.rpartition(".")[0]

_ADVICE = {
    "Op type not registered": (
        "The ops of TensorFlow Text, which tensorflow_model_server has built in, are loaded from their "
        f"package if it is installed (pip install --no-deps 'tensorflow-text=={_SERIES}.*'). "
        "Other ops cannot be served; of those, the official binary has TensorFlow Decision Forests'."
    ),
    "Missing py trampoline": (
        "The model calls Python (tf.py_function, tf.numpy_function), which a SavedModel lacks: no model "
        "server can run it. Export the model with TensorFlow's own operations; Python goes into inference.py."
    ),
    " is both fed and fetched": (
        "The signature returns an input unchanged, which TensorFlow's sessions refuse. Export it as "
        "tf.identity(input)."
    ),
    "Tensor :0, specified in either": (
        "An input or output of the signature has no tensor of its own: it is sparse or ragged, which "
        "TF Serving can't serve. Export its parts (indices, values, row_splits ...) or a dense tensor."
    ),
    "Cannot assign a device for operation": (
        "The model was saved with its operations bound to that device. Save it with clear_devices=True, or "
        "without tf.device."
    ),
}
"""Part of what TensorFlow says, and what to do about it."""

_LFS = b"version https://git-lfs"


def explained(error: ServingError, *, has_variables: bool = True) -> ServingError:
    """TensorFlow's error, with what to do about one that says nothing of its cause."""
    advice = next((advice for part, advice in _ADVICE.items() if part in error.text), "")
    if error.code is GrpcCode.FAILED_PRECONDITION:
        if _NO_VARIABLE in error.text:
            advice = _UNTRACKED if has_variables else _NO_INDEX
        elif _NO_VALUE in error.text and not has_variables:
            advice = _NO_INDEX
    return ServingError(error.code, f"{error.text}\n{advice}") if advice else error


def of_files(error: ServingError, folder: Path) -> ServingError:
    """An error of reading variables, with what to do if files are missing, cut off or another model's."""
    if error.code not in {GrpcCode.NOT_FOUND, GrpcCode.OUT_OF_RANGE, GrpcCode.DATA_LOSS}:
        return error
    advice = f"The files in {folder} are incomplete, or belong to another model: copy the folder again."
    return ServingError(error.code, f"{error.text}\n{advice}")


def unreadable(content: bytes) -> str:
    if content.startswith(_LFS):
        return "It is Git LFS's pointer to the file: get the file itself with `git lfs pull`."
    return f"It has {len(content)} bytes, and may be incomplete: copy it again from where it was saved."


def other_tags(known: Sequence[Sequence[str]], folder: Path) -> str:
    """Tags of a SavedModel that lacks the wanted ones."""
    if not known:
        sizes = [f"{file.name} has {file.stat().st_size} bytes" for file in folder.glob("saved_model.pb*")]
        return f"It has none at all: {', '.join(sizes)}."
    listed = ", ".join(f"{{ {' '.join(tags)} }}" for tags in known)
    return f"It has {listed}: save it with the tag serve alone."


def other_files(folder: Path) -> str:
    """Files that a folder without a SavedModel may have instead."""
    if (folder / "saved_model.cpb").exists():
        return (
            " There is a saved_model.cpb, which the embedded model server can't read: save the model without "
            "tf.saved_model.SaveOptions(experimental_image_format=True)."
        )
    if any(folder.glob("*.keras")) or any(folder.glob("*.h5")):
        return " There is a Keras file: make an archive of it with `tfs-proxy pack FILE`."
    return ""
