"""Data capture: requests and answers as records in SageMaker's format, written beside the request path."""
