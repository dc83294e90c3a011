"""What a script defines, read from its syntax alone: nothing of it is run."""
