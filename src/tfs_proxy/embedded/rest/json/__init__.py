"""TF Serving's reading and writing of JSON, as the REST API needs it."""
