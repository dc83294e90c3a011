"""Bytes <-> tensors: content types, TF Serving's JSON, the Open Inference Protocol, and capture records."""
