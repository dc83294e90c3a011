"""Bytes of HTTP and of protobuf messages: what every room that talks needs, and nothing of ours above it."""
