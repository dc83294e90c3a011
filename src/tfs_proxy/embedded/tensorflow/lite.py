"""Facts of a TensorFlow Lite model that its flatbuffer tells and its interpreter does not."""

import queue
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tfs_proxy.embedded.core.servable import DEFAULT_SIGNATURE, Array, PreparedCall, next_of
from tfs_proxy.embedded.errors import ServingError, invalid, shape_text
from tfs_proxy.embedded.tensorflow import runtime  # noqa: F401 (its stand-in for the package comes first)
from tfs_proxy.values.signature import PREDICT_METHOD
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import SignatureDef, TensorInfo
from tfs_proxy.wire.protos.tensors import data_type_of

_SIGNATURES = b"signature_defs_metadata"
"""The metadata that holds a map of serialized SignatureDefs, which TF Serving reads."""

_RESIZED = frozenset(
    {
        *(
            "ABS",
            "CAST",
            "CEIL",
            "COS",
            "DEQUANTIZE",
            "ELU",
            "EXP",
            "FLOOR",
            "GELU",
            "HARD_SWISH",
            "LEAKY_RELU",
        ),
        *("LOG", "LOGISTIC", "NEG", "QUANTIZE", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND"),
        *("RSQRT", "SIN", "SQRT", "SQUARE", "TANH"),
        *("ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "POW", "SQUARED_DIFFERENCE", "SUB"),
        *("FULLY_CONNECTED", "RESHAPE", "SOFTMAX"),
    }
)
"""Operations that refuse a shape that does not fit, or compute with any of up to four dimensions.

Others take their input's dimensions for granted: they read beyond it, or end the process.
"""


class LiteFile:
    """A model file: the signatures in its metadata, and whether its inputs take other shapes than declared.

    Raises ServingError if the file is not a model.
    """

    def __init__(self, path: Path) -> None:
        from tensorflow.lite.python import schema_py_generated as schema

        try:
            self._model = schema.Model.GetRootAs(path.read_bytes())
            self.signatures = self._signatures()
            self.resizable = self._operations(vars(schema.BuiltinOperator)) <= _RESIZED
        except ServingError:
            raise
        except Exception as error:
            raise invalid(f"Failed to load {path}: it is not a TensorFlow Lite model ({error})") from error

    def _operations(self, numbers: Mapping[str, Any]) -> set[str]:
        names = {number: name for name, number in numbers.items() if isinstance(number, int)}
        codes = map(self._model.OperatorCodes, range(self._model.OperatorCodesLength()))
        # Files of before 2020 have the number in the older field alone.
        return {names.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "") for code in codes}

    def _signatures(self) -> dict[str, SignatureDef]:
        from flatbuffers import flexbuffers

        for metadata in map(self._model.Metadata, range(self._model.MetadataLength())):
            if metadata.Name() == _SIGNATURES:
                content = self._model.Buffers(metadata.Buffer()).DataAsNumpy().tobytes()
                return _parsed(flexbuffers.GetRoot(content))
        return {}


def _parsed(signatures: Any) -> dict[str, SignatureDef]:
    keys = [key.AsKey for key in signatures.AsMap.Keys]
    values = [value.AsStringBytes for value in signatures.AsMap.Values]
    try:
        return {key: SignatureDef.FromString(value) for key, value in zip(keys, values, strict=True)}
    except DecodeError as error:
        raise ServingError(
            GrpcCode.INVALID_ARGUMENT,
            "Invalid SignatureDefs found in TfLite model: Cannot parse signature def found in flatbuffer.",
        ) from error


FILE = "model.tflite"

Details = Mapping[str, Mapping[str, Any]]
"""Details of the interpreter's inputs or outputs, by alias."""

_MAX_RANK = 6
"""The most dimensions that the interpreter's delegate has room for, which does not count them."""

_MAX_RESIZED_RANK = 4
"""The most dimensions of a tensor of another shape than declared: at five some kernels end the process."""

_FEWEST_OF_IMAGES = 3
"""Least dimensions of a tensor that may be one of images, of which some operations want one at least."""

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Runs one signature of one interpreter, from and to arrays by alias."""


Idle = queue.SimpleQueue[int]
"""The interpreters of the pool that run nothing, by number: all signatures share them."""


class _LiteSignature:
    """One signature of the model: its tensors, and one runner per interpreter of the pool.

    With ``resizable`` its inputs take other shapes than declared.
    """

    def __init__(
        self, inputs: Details, outputs: Details, runs: Sequence[Run], idle: Idle, *, resizable: bool
    ) -> None:
        self.inputs, self.outputs, self._resizable = inputs, outputs, resizable
        self._sizes = {alias: _sizes(detail) for alias, detail in inputs.items()}
        self._runs, self._idle = runs, idle

    def message(self) -> SignatureDef:
        """The signature as TF Serving shows it."""
        signature = SignatureDef(method_name=PREDICT_METHOD)
        for tensors, shown in ((self.inputs, signature.inputs), (self.outputs, signature.outputs)):
            for alias, detail in tensors.items():
                shown[alias].CopyFrom(_info(detail))
        return signature

    def run(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run on whichever interpreter is idle. Raises ServingError, and WouldWait as `next_of` does."""
        for alias, array in arrays.items():
            if not (self._resizable and _is_resized(array)):
                _check(alias, self._sizes[alias], array)
        chosen = next_of(self._idle)
        try:
            return self._runs[chosen](arrays)
        except (ValueError, RuntimeError) as error:
            raise invalid(str(error).strip()) from error
        finally:
            self._idle.put(chosen)


class TfliteBackend:
    """A pool of interpreters of one model; one that is running can run nothing else."""

    waits = False

    def __init__(self, path: Path, interpreters: int) -> None:
        from tensorflow.lite.python.interpreter import Interpreter

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pool = [Interpreter(str(path), num_threads=1) for _ in range(interpreters)]
        except (ValueError, RuntimeError) as error:
            raise invalid(f"Failed to load {path}: {error}") from error
        file = LiteFile(path)
        self._signatures = _signatures(pool, file)
        self.signatures = file.signatures or {
            name: signature.message() for name, signature in self._signatures.items()
        }

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        """A call of the signature that these tensors belong to. Raises ServingError if there is none."""
        for signature in self._signatures.values():
            inputs = {detail["name"]: alias for alias, detail in signature.inputs.items()}
            outputs = {detail["name"]: alias for alias, detail in signature.outputs.items()}
            if inputs.keys() == set(feeds) and outputs.keys() >= set(fetches):
                return _call(signature, [inputs[name] for name in feeds], [outputs[name] for name in fetches])
        raise invalid(f"No signature of the TensorFlow Lite model takes {', '.join(feeds)}")

    def close(self) -> None:
        self._signatures = {}


def _call(signature: _LiteSignature, inputs: Sequence[str], outputs: Sequence[str]) -> PreparedCall:
    def call(arrays: Sequence[Array]) -> Sequence[Array]:
        outputs_by_alias = signature.run(dict(zip(inputs, map(_readable, arrays), strict=True)))
        return [np.array(outputs_by_alias[alias]) for alias in outputs]

    return call


def _is_resized(array: Array) -> bool:
    """True if operations that look at their input's shape take this one, whatever is declared."""
    return array.size > 0 and array.ndim <= _MAX_RESIZED_RANK


def _check(alias: str, sizes: Sequence[int], array: Array) -> None:
    """Raises ServingError for a shape that the interpreter would compute with, although the model can't.

    Only the first size may differ from the model's own; one without dimensions may take any number.
    """
    shape = array.shape
    if sizes and len(shape) != len(sizes):
        raise invalid(f"input {alias} must be {len(sizes)}-dimensional: {shape_text(shape)}")
    if len(shape) > max(_MAX_RANK, len(sizes)):
        raise invalid(f"TensorFlow Lite takes {_MAX_RANK} dimensions at most: {shape_text(shape)}")
    if any(size >= 0 and size != other for size, other in zip(sizes[1:], shape[1:], strict=False)):
        raise invalid(f"input {alias} must be of shape {shape_text(sizes)}: {shape_text(shape)}")
    if not array.size and len(shape) >= _FEWEST_OF_IMAGES:
        raise invalid(f"input {alias} has no elements: {shape_text(shape)}")


def _readable(array: Array) -> Array:
    """An array as the interpreter reads it: of one without dimensions the memory, never an object."""
    if array.ndim or array.dtype != object:
        return array
    text = array.item()
    return np.ndarray((), f"S{len(text)}", text)


def _signatures(pool: Sequence[Any], file: LiteFile) -> dict[str, _LiteSignature]:
    """Signatures of the file's metadata; else those that the interpreter knows; else one of all tensors."""
    idle: Idle = queue.SimpleQueue()
    for number in range(len(pool)):
        idle.put(number)
    inputs, outputs = pool[0].get_input_details(), pool[0].get_output_details()
    if file.signatures:
        return {
            name: _by_index(
                pool,
                idle,
                _named(signature.inputs, inputs, "input"),
                _named(signature.outputs, outputs, "output"),
                resizable=file.resizable,
            )
            for name, signature in file.signatures.items()
        }
    names = list(pool[0].get_signature_list())
    if not names:
        shown = [{_alias(detail): detail for detail in details} for details in (inputs, outputs)]
        return {DEFAULT_SIGNATURE: _by_index(pool, idle, *shown, resizable=file.resizable)}
    signatures = {}
    for name in names:
        runners = [interpreter.get_signature_runner(name) for interpreter in pool]
        inputs, outputs = runners[0].get_input_details(), runners[0].get_output_details()
        runs = [_by_keyword(runner) for runner in runners]
        signatures[name] = _LiteSignature(inputs, outputs, runs, idle, resizable=file.resizable)
    return signatures


def _named(shown: Mapping[str, TensorInfo], details: Sequence[Mapping[str, Any]], kind: str) -> Details:
    """The interpreter's tensors that a SignatureDef names, whose names become the interpreter's.

    Older converters left out the output's number. Raises ServingError for an unknown tensor.
    """
    by_name = {str(detail["name"]): detail for detail in details}
    for alias, info in shown.items():
        known = [name for name in (info.name, info.name.partition(":")[0]) if name in by_name]
        if not known:
            raise ServingError(
                GrpcCode.INTERNAL,
                f"Unknown tensor '{info.name}'.\n\tSignature {kind} {alias} references an unknown tensor",
            )
        info.name = known[0]
    return {alias: by_name[info.name] for alias, info in shown.items()}


def _by_keyword(runner: Any) -> Run:
    return lambda arrays: runner(**arrays)


def _by_index(
    pool: Sequence[Any], idle: Idle, inputs: Details, outputs: Details, *, resizable: bool
) -> _LiteSignature:
    """A signature of tensors that the interpreter knows by number alone."""

    def by_index(interpreter: Any) -> Run:
        def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
            for alias, array in arrays.items():
                interpreter.resize_tensor_input(inputs[alias]["index"], array.shape)
            interpreter.allocate_tensors()
            for alias, array in arrays.items():
                interpreter.set_tensor(inputs[alias]["index"], array)
            interpreter.invoke()
            return {alias: interpreter.get_tensor(detail["index"]) for alias, detail in outputs.items()}

        return run

    runs = [by_index(interpreter) for interpreter in pool]
    return _LiteSignature(inputs, outputs, runs, idle, resizable=resizable)


def _alias(detail: Mapping[str, Any]) -> str:
    return str(detail["name"]).removesuffix(":0")


def _data_type(kind: np.dtype[Any]) -> Any:
    return DataType.DT_STRING if kind.kind in "SO" else data_type_of(np.empty(0, kind))


def _sizes(detail: Mapping[str, Any]) -> list[int]:
    """A tensor's shape as the model has it; -1 is any size."""
    return list(detail["shape_signature"].tolist())


def _info(detail: Mapping[str, Any]) -> TensorInfo:
    kind = np.dtype(detail["dtype"])
    info = TensorInfo(name=detail["name"])
    info.dtype = _data_type(kind)
    for size in _sizes(detail):
        info.tensor_shape.dim.add(size=size)
    info.tensor_shape.SetInParent()
    return info
