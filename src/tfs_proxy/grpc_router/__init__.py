"""The gRPC server of multi-model mode: nginx -> here -> the model server of the model that a call names."""
