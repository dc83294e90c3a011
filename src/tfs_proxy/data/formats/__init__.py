"""One module per format, between bytes and arrays."""
