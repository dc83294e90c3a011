"""Whether what a command printed is what a text says that it prints."""

import json
import math
import re

NUMBER = r"(?<![\d.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\d.])"
DECIMAL = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?")
ANYTHING = "..."
TOLERANCE = 0.02


def matches(wanted: str, printed: str) -> bool:
    """Compare JSON in one order of its keys; `...` is anything, white space is alike, decimals are close."""
    return text_matches(one_spelling(wanted), one_spelling(printed)) or text_matches(wanted, printed)


def one_spelling(text: str) -> str:
    """A JSON document with its keys in order; any other text as it is."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def text_matches(wanted: str, printed: str) -> bool:
    """Whether a text is the wanted one; decimals may differ by TOLERANCE."""
    pieces = re.split(rf"({re.escape(ANYTHING)}|{DECIMAL.pattern})", wanted.strip())
    match = re.fullmatch("".join(map(pattern_of, pieces)), printed.strip(), re.DOTALL)
    decimals = [float(piece) for piece in pieces if DECIMAL.fullmatch(piece)]
    return match is not None and all(
        math.isclose(decimal, float(number), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for decimal, number in zip(decimals, match.groups(), strict=True)
    )


def pattern_of(piece: str) -> str:
    """The regular expression of a piece of the wanted text; a decimal is a group."""
    if piece == ANYTHING:
        return ".*"
    if DECIMAL.fullmatch(piece):
        return f"({NUMBER})"
    return r"\s*".join(re.escape(word) for word in re.split(r"\s+", piece))
