"""Errors of requests to the embedded server: a gRPC code and TF Serving's own wording.

Raised anywhere below the two servers; `rest.app` and `grpc.server` turn it into their protocol.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tfs_proxy.values.errors import Overloaded, PayloadTooLarge
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS
from tfs_proxy.wire.grpc_codes import GrpcCode

_FED_ANOTHER_TYPE = re.compile(
    r"Type mismatch: actual (?P<given>\w+) vs\. expect (?P<wanted>\w+)"
    r"\s+\[\[\{\{node _arg_\S*_(?P<at>\d+)\}\}\]\]"
)
"""Message of a prepared call for an input of another type than the placeholder's; both are numbers there."""


class ServingError(Exception):
    """One request, or one load, that can't be answered: ``code`` and a text for the client."""

    def __init__(self, code: GrpcCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def invalid(text: str) -> ServingError:
    return ServingError(GrpcCode.INVALID_ARGUMENT, text)


def caller_left() -> ServingError:
    return ServingError(GrpcCode.CANCELLED, "The client has gone, or its time is over")


def of_memory(error: PayloadTooLarge | Overloaded) -> ServingError:
    is_late = isinstance(error, Overloaded)
    return ServingError(GrpcCode.UNAVAILABLE if is_late else GrpcCode.INVALID_ARGUMENT, str(error))


MAX_STRING_DIMENSIONS = 32
"""Most dimensions of strings: the iterators by which TensorFlow's binding walks them have no more, and end
the process."""


def too_many_dimensions(subject: str, dimensions: int, *, strings: bool = False) -> ServingError:
    """The refusal of a tensor that no numpy array can hold: a limit of this server, not of TF Serving."""
    most = f"{MAX_STRING_DIMENSIONS} of strings" if strings else f"{MAX_DIMENSIONS}"
    return invalid(
        f"{subject} has {dimensions} dimensions; the embedded model server takes and gives at most {most}. "
        "Reshape it, or use tensorflow_model_server."
    )


def shape_text(sizes: Iterable[int]) -> str:
    """A shape as TensorFlow writes it in its error texts: ``[1,2]``."""
    return f"[{','.join(map(str, sizes))}]"


@contextmanager
def tensorflow_errors() -> Iterator[None]:
    """Turn what TensorFlow raises into a ServingError with its code and message."""
    try:
        yield
    except ServingError:
        raise
    except Exception as error:
        raise from_tensorflow(error) from error


def from_tensorflow(error: Exception) -> ServingError:
    """The same error as a ServingError; INTERNAL if it carries no code of TensorFlow's."""
    if isinstance(error, UnicodeDecodeError):
        # Its words, which Python could not read: they repeat bytes of the request.
        return invalid(error.object.decode("utf-8", "replace"))
    code = getattr(error, "error_code", None)
    message = getattr(error, "message", None)
    if code is None:
        return ServingError(GrpcCode.INTERNAL, str(error) or type(error).__name__)
    text = _FED_ANOTHER_TYPE.sub(
        r"Expects arg[\g<at>] to be \g<wanted> but \g<given> is provided", str(message)
    )
    return ServingError(GrpcCode(int(code)), text)
