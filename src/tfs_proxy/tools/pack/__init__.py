"""Ways from a trained model to an archive: pack, init and warmup; commands call them before a run."""
