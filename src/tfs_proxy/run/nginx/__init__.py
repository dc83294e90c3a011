"""nginx in front: its configuration for each phase, and its process."""
