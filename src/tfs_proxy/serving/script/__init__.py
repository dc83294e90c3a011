"""The user's inference.py: loaded once per worker, called once per request."""
