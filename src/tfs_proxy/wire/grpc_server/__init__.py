"""A gRPC server on asyncio, without grpcio: `embedded.grpc` gives it the methods of the model server."""
