"""What would be served: read from the archive and reported in plain language, before anything starts."""
