"""gunicorn's worker classes as this container needs them."""
