"""Conversion of bytes and tensors: media types, TF Serving's JSON, Open Inference Protocol, capture."""
