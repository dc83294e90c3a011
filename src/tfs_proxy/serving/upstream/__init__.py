"""Talking to a model server: one interface, REST and gRPC behind it."""
