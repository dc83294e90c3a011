"""From a request's records or tensors to a model's answer, with no HTTP inside."""
