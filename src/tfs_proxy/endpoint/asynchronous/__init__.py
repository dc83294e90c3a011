"""Asynchronous inference: requests wait in a queue, and answers go where the endpoint's config says."""
