"""The data plane: requests -> a model's answer, with upstream/ and the user's script/."""
