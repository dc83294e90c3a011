"""What a server does for one connection, and what it bounds for all of them."""
