"""Requests gathered into batches, on TensorFlow's own scheduler."""
