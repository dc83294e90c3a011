"""What commands share: flags, files and steps; none of them is a command."""
