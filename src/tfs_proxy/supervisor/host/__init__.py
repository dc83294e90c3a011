"""What the machine provides: sockets, devices, mounts, and processes that lost their parent."""
