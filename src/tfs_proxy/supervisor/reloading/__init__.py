"""``serve --reload`` and ``--watch``: changed code and models are loaded beside those that serve."""
