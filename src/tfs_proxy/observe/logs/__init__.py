"""The log: one format for every process of a run, as text or as JSON."""
