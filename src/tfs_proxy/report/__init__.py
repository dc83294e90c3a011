"""What would be served: found, counted and said in plain language, before anything starts."""
