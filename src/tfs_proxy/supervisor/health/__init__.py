"""How ready a run is: what workers and model servers say of themselves -> here -> /ping and the run loop."""
