"""Reports in plain language what would be served, from the archive and before anything starts."""
