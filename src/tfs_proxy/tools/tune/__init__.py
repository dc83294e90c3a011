"""The search for settings: what they may be, stacks that are measured with them, and what was found."""
