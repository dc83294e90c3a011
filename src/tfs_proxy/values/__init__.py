"""Values that every room may hold: errors, names, signatures, batches, and what the machine allows."""
