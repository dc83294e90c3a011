"""Ways from a trained model to an archive: pack and init; commands call them before a run."""
