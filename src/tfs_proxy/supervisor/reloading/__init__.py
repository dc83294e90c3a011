"""``serve --reload``: new workers load code that has changed, while the old ones go on serving."""
