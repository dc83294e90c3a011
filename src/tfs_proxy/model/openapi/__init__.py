"""OpenAPI 3.1 document of a service: pure, from signatures, settings and the script."""
