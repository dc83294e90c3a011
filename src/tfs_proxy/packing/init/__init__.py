"""``tfs-proxy init``: a folder with a script, its test and its documentation, made for a model's inputs."""
