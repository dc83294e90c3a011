"""HTTP/2 as gRPC needs it, as pure functions and values: below `grpc_client`."""
