"""Multi-model mode: models that are loaded and unloaded at run time, each a serving stack of its own."""
