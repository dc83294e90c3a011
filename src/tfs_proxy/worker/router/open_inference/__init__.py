"""Open Inference Protocol over gRPC: translates its calls into TF Serving's, and the answers back."""
