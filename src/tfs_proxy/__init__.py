"""Serve a TensorFlow model.tar.gz the way Amazon SageMaker expects, anywhere."""

from tfs_proxy.script.response import HTTPError, Request, Response

__all__ = ["HTTPError", "Request", "Response"]
__version__ = "0.1.0"
