"""What happens around each request of a worker: its record, its note, its counts, its line and its spans."""
