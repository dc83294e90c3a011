"""Serve a TensorFlow model.tar.gz the way Amazon SageMaker expects, anywhere."""

__version__ = "0.1.0"
