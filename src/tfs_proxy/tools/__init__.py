"""What people use beside serving: pack, endpoint, conform, tune, deploy."""
