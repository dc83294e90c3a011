"""The ``gthread`` worker class on Linux: a poller with its threads, the connections, and gunicorn's side."""
