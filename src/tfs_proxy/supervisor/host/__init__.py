"""What the machine brings: sockets, devices, mounts, and processes that lost their parent."""
