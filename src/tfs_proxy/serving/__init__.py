"""Data plane: a model's answers to requests, with upstream/ and the user's script/."""
