"""What the supervisor itself answers of the Open Inference Protocol: all that no worker is needed for."""
