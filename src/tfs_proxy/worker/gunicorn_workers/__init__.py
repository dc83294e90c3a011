"""gunicorn's worker classes with this container's additions."""
