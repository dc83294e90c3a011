"""Containers behind an endpoint: ours as a process, an image by Docker, or one that runs already."""
