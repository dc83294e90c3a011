"""Which models there are, and in which state: a state machine and a task for each."""
