"""What a run tells about itself: the catalogue of metrics, recorders and their text; no HTTP."""
