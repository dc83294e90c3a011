"""Start, watch and stop nginx, gunicorn and the model servers; the control API."""
