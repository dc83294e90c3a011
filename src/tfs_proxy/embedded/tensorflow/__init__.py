"""A SavedModel or TensorFlow Lite model in TensorFlow: loaded, guarded and run."""
