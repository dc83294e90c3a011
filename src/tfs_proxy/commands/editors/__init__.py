"""What shells and editors ask for: completions and JSON schemas, printed by options of `tfs-proxy`."""
