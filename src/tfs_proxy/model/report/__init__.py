"""Report in plain language on what would be served, from the archive and before anything starts."""
