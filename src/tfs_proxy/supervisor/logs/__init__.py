"""The log of a run: what children print, and the level that all processes follow."""
