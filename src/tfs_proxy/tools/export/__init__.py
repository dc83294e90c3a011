"""Writes SavedModels: out of Keras files, and with signatures added; tensorflow runs in a child process."""
