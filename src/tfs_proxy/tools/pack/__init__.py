"""From a trained model to an archive: pack, init and warmup; the commands call them before anything runs."""
