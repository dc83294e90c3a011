"""What `/metrics` has to ask others for: the model servers, and the driver of the GPUs."""
