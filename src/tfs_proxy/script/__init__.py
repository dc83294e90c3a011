"""The user's inference.py: load it, call it, and the context it gets."""
