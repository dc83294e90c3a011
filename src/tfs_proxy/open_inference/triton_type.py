"""The media type that Triton takes at SageMaker's /invocations, where no header says how much is JSON."""

from typing import Final

TRITON_TYPE: Final = "application/vnd.sagemaker-triton.binary+json"
JSON_SIZE: Final = "json-header-size"


def triton_type(size: int) -> str:
    """The content type of a body of which ``size`` bytes are JSON."""
    return f"{TRITON_TYPE};{JSON_SIZE}={size}"
