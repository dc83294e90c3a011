"""Script of the user, inference.py: loaded once per worker, called once per request."""
