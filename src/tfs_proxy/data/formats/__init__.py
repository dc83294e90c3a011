"""Formats: one module for each, between bytes and arrays."""
