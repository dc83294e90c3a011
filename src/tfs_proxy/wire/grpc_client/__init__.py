"""Unary gRPC calls over HTTP/2 for threads that wait: below `upstream.grpc`, without grpcio."""
