"""Bytes <-> tensors, one file per format: the conversion core between web and upstream."""
