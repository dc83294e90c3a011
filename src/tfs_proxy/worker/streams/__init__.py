"""Process of bidirectional streams: WebSocket on a unix socket behind nginx, beside gunicorn's workers."""
