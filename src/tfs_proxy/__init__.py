"""Serve a TensorFlow model.tar.gz the way Amazon SageMaker expects, anywhere."""

import importlib
from typing import TYPE_CHECKING, Any

from tfs_proxy.serving.script.values import HTTPError, Request, Response

if TYPE_CHECKING:
    from tfs_proxy.model.openapi.description import describe
    from tfs_proxy.serving.script.context import Context
    from tfs_proxy.serving.script.handlers import ModelResponse
    from tfs_proxy.tools.client import Client, ClientError, NotAnswered, RequestRefused, ServerFailed

__all__ = [
    "Client",
    "ClientError",
    "Context",
    "HTTPError",
    "ModelResponse",
    "NotAnswered",
    "Request",
    "RequestRefused",
    "Response",
    "ServerFailed",
    "describe",
]
__version__ = "1.0.0"

_CLIENT = "tfs_proxy.tools.client"
_LATER = {
    "Client": _CLIENT,
    "ClientError": _CLIENT,
    "NotAnswered": _CLIENT,
    "RequestRefused": _CLIENT,
    "ServerFailed": _CLIENT,
    "Context": "tfs_proxy.serving.script.context",
    "ModelResponse": "tfs_proxy.serving.script.handlers",
    "describe": "tfs_proxy.model.openapi.description",
}


def __getattr__(name: str) -> Any:
    """Import what scripts seldom need when it is asked for: numpy and other modules come with it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
