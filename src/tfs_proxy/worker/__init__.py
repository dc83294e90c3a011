"""Falcon resources, one file a protocol; gunicorn's worker classes and the translator."""
