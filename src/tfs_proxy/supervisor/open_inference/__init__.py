"""The supervisor's part of the Open Inference Protocol: everything that needs no worker."""
