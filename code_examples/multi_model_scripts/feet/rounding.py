"""Version 2: two decimals, unless the caller wants others."""

VERSION = 2


def rounded(number: float, decimals: int = 2) -> float:
    """The nearest number with so many decimals."""
    return round(number, decimals)
