"""Which GPUs there are, and which of them each model server gets."""
