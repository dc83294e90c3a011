"""The readiness of a run, from reports of workers and model servers; for /ping and the run loop."""
