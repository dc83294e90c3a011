"""Batch transform: SageMaker's semantics on any machine, against any /invocations (contract 1.10)."""
