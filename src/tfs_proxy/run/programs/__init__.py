"""The programs of a run: argv, environment and files of each, as values."""
