"""What came of the checks, for readers (a table), for CI (JUnit's XML), and for programs (JSON)."""
