"""The parts of the tensorflow package that read and run TensorFlow Lite models."""

from collections.abc import Mapping
from typing import Any

from tfs_proxy.embedded.tensorflow import runtime  # noqa: F401 (its stand-in for the package comes first)


def interpreter(path: str) -> Any:
    """A TensorFlow Lite interpreter of a model file, on one thread."""
    from tensorflow.lite.python.interpreter import Interpreter

    return Interpreter(path, num_threads=1)


def model(content: bytes) -> Any:
    """The root table of a TensorFlow Lite model's flatbuffer, which is read as it is asked."""
    from tensorflow.lite.python import schema_py_generated

    return schema_py_generated.Model.GetRootAs(content)


def operations() -> Mapping[int, str]:
    """The names of TensorFlow Lite's own operations, by number."""
    from tensorflow.lite.python import schema_py_generated

    numbers = vars(schema_py_generated.BuiltinOperator).items()
    return {number: name for name, number in numbers if isinstance(number, int)}


def flexbuffer(content: bytes) -> Any:
    """The root of a FlexBuffer."""
    from flatbuffers import flexbuffers

    return flexbuffers.GetRoot(content)
