"""Errors of `sagemaker-runtime` and `sagemaker`, with the codes and members that botocore decodes."""

import json
from functools import cache
from http import HTTPStatus

from tfs_proxy.endpoint.description.service_model import RUNTIME, service_model
from tfs_proxy.errors import RequestError
from tfs_proxy.wire.http_messages import HttpResponse

ERROR_TYPE = "x-amzn-ErrorType"
MODEL_ERROR, NOT_READY, UNAVAILABLE = "ModelError", "ModelNotReadyException", "ServiceUnavailable"
REFUSED = "ValidationError"
NO_ANSWER = 0
"""The OriginalStatusCode of a container that gave no answer, as AWS's."""

LONGEST_MESSAGE = 2048
"""Characters of a container's own error that reach the client (docs/reference/sagemaker.md)."""

TOO_LARGE = "413"
"""AWS has no code for a body that is too large: the HTTP status is all that botocore shows."""

SERVER_ERRORS = 500


class AwsError(RequestError):
    """An answer that botocore raises as an exception of this ``code``; ``members`` are its further ones."""

    def __init__(self, code: str, message: str, **members: str | int) -> None:
        super().__init__(message)
        self.code, self.message, self.members = code, message, members


def model_error(container: str, status: int, message: str, log_stream: str) -> AwsError:
    """The ModelError for a container's ``status`` (`NO_ANSWER` if it has none) and its own words."""
    side = "client" if HTTPStatus.BAD_REQUEST <= status < SERVER_ERRORS else "server"
    original = message[:LONGEST_MESSAGE]
    return AwsError(
        MODEL_ERROR,
        f'Received {side} error ({status}) from {container} with message "{original}".',
        OriginalStatusCode=status,
        OriginalMessage=original,
        LogStreamArn=log_stream,
    )


def refused(message: str) -> AwsError:
    """The ValidationError for a request that AWS would refuse."""
    return AwsError(REFUSED, message)


def original_answer(error: AwsError) -> HttpResponse | None:
    """The container's own answer that a ModelError is about; None if there was none."""
    status = int(error.members.get("OriginalStatusCode", NO_ANSWER))
    if error.code != MODEL_ERROR or status == NO_ANSWER:
        return None
    return HttpResponse(status, str(error.members["OriginalMessage"]).encode())


def answer_to(error: AwsError) -> HttpResponse:
    """What the client gets."""
    body = {"Message": error.message, **error.members}
    headers = {"Content-Type": "application/json"}
    if not error.code.isdecimal():
        headers[ERROR_TYPE] = error.code
    return HttpResponse(status_of(error.code), json.dumps(body).encode(), headers)


@cache
def status_of(code: str) -> int:
    """The HTTP status of an error of `sagemaker-runtime`; 400 for those of the control plane."""
    if code.isdecimal():
        return int(code)
    errors = {shape.name: shape.metadata.get("error", {}) for shape in service_model(RUNTIME).error_shapes}
    return int(errors.get(code, {}).get("httpStatusCode", HTTPStatus.BAD_REQUEST))
