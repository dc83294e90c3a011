"""Upstream: one interface to model servers, REST and gRPC behind it."""
