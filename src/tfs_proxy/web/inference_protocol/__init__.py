"""The Open Inference Protocol (KServe v2) over REST: what workers answer of it."""
