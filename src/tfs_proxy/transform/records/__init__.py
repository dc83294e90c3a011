"""Splits objects into records, packs records into batches, makes outputs of answers."""
