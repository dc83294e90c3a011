"""Requests that a model server answers before a version becomes available: made, proven and written."""
