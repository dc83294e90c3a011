"""What the flatbuffer of a TensorFlow Lite model says that its interpreter does not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.embedded.tensorflow import runtime  # noqa: F401 (its stand-in for the package comes first)
from tfs_proxy.protos import SignatureDef
from tfs_proxy.wire.grpc_codes import GrpcCode

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
