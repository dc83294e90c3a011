"""What is served, as an OpenAPI 3.1 document: pure, from signatures, settings and a script's own words."""
