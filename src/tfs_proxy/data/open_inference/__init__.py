"""Open Inference Protocol (KServe v2): its values, as REST and gRPC share them, without HTTP or gRPC."""
