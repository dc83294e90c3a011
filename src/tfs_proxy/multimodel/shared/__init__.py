"""Shared mode: model servers with the models of all archives, and workers for those without a script."""
