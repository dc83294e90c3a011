"""Serving stacks that another program of ours starts, and stops when it ends."""
