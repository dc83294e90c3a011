"""What a search has found, for people, for shells and for machines."""
