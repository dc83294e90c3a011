"""Describes what is served as an OpenAPI 3.1 document: pure, from signatures, settings and the script."""
