"""The embedded server's REST API."""
