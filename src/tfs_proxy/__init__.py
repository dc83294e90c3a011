"""Serve a TensorFlow model.tar.gz the way Amazon SageMaker expects, anywhere."""

from tfs_proxy.script.response import HTTPError

__all__ = ["HTTPError"]
__version__ = "0.1.0"
