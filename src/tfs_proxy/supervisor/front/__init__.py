"""What a run shows to the outside: the entrances for requests, and what it says of itself."""
