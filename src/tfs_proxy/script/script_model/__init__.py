"""The contract of AWS's other toolkits: a script with ``model_fn`` is the model itself."""
