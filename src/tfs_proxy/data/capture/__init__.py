"""Data capture: requests and answers as records in SageMaker's format, written by a thread of its own."""
