"""Serve a TensorFlow model.tar.gz the way Amazon SageMaker expects, anywhere."""

from typing import TYPE_CHECKING, Any

from tfs_proxy.serving.script.values import HTTPError, Request, Response

if TYPE_CHECKING:
    from tfs_proxy.model.openapi.description import describe
    from tfs_proxy.serving.script.context import Context
    from tfs_proxy.serving.script.handlers import ModelResponse

__all__ = ["Context", "HTTPError", "ModelResponse", "Request", "Response", "describe"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what a script seldom needs when it is asked for: numpy and other modules come with it."""
    if name == "Context":
        from tfs_proxy.serving.script.context import Context

        return Context
    if name == "describe":
        from tfs_proxy.model.openapi.description import describe

        return describe
    if name == "ModelResponse":
        from tfs_proxy.serving.script.handlers import ModelResponse

        return ModelResponse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
