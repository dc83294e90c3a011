"""A SavedModel in TensorFlow: loaded, guarded and run."""
