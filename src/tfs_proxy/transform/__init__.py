"""Batch transform on any machine, against any /invocations; docs/reference/sagemaker.md has its rules."""
