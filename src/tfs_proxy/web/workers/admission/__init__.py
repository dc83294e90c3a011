"""The adaptive limit: how many requests a worker answers at once, and which it refuses beyond that."""
