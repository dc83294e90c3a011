"""Shadow variants: they get copies of requests, and their answers are compared instead of returned."""
