"""Worker classes of gunicorn with this container's additions."""
