"""Bytes of HTTP and of protobuf messages, for every room that communicates."""
