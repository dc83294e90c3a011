"""The Open Inference Protocol over gRPC: makes calls of TensorFlow Serving of its inferences."""
