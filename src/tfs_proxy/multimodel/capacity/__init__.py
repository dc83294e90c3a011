"""Which models fit, where they go, and which leave: decisions from measurements."""
