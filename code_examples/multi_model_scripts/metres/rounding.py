"""Version 1: whole numbers."""

VERSION = 1


def rounded(number: float) -> int:
    """The nearest whole number."""
    return round(number)
