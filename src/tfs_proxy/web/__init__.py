"""HTTP in front: a falcon app, one resource per URL, and the gunicorn workers that run it."""
