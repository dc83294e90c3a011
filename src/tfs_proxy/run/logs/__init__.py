"""The log of a run: output of children, and the level that all processes follow."""
