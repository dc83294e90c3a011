"""The outside of a run: its sockets for requests, and its answers about itself."""
