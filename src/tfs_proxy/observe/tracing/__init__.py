"""Traces of requests by OpenTelemetry, which only this folder imports, and only if they are on."""
