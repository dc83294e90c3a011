"""A TF-Serving-compatible model server on the tensorflow package."""
