"""Parts of the machine: sockets, devices, mounts, and processes that lost their parent."""
