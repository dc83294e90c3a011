"""A run: its processes, readiness, nginx, control API and stacks; many models and pipelines."""
