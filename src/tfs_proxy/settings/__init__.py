"""Environment -> Settings: the only reader of environment variables."""
