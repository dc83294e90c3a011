"""What the graph of a SavedModel does with its strings, found in its bytes without tensorflow."""
