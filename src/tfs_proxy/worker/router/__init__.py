"""Server of gRPC for multi-model mode: it sends each call from nginx to a model server of the named model."""
