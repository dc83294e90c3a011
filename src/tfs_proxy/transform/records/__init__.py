"""An object as records, records as batches, answers as output."""
