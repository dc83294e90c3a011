"""The environment -> Settings: the only reader of environment variables."""
