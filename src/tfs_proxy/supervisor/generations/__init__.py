"""Generations of a run: each serves the archive as it was at one moment, and the next one takes its place."""
