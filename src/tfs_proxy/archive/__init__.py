"""Fetches and safely unpacks model.tar.gz, finds models and versions, reads saved_model.pb."""
