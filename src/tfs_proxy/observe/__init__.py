"""Logs, metrics and traces of a run: the catalogue of metrics, recorders and their text; no HTTP."""
