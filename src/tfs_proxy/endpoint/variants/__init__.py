"""Variants of an endpoint: the instances of each, which of them a request goes to, and their exchange."""
