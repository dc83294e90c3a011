"""The page to try a model: its files, and who gets them. Whoever answers HTTP hands them out."""
