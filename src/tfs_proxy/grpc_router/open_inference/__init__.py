"""The Open Inference Protocol over gRPC: its calls -> TF Serving's, and the answers back."""
