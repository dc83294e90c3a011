"""``serve --reload``: changed code and models are loaded while the old ones serve."""
