"""Patterns of names: models, versions, labels, signatures and methods.

The patterns are text, for Python's ``re`` and nginx's PCRE alike, to be matched whole. Names that come from
an archive are any bytes: `printable` and `one_entry` show them. `utf8` and `utf8_texts` are for texts of
clients and scripts.
"""

import keyword
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

MODEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
LOADED_MODEL_CHARACTERS = 64
LOADED_MODEL = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LOADED_MODEL_CHARACTERS - 1}}}"
"""Name of a model that is loaded at run time: short, since its socket's path contains it."""

MOST_SERVED_CHARACTERS = 96
SERVED_MODEL = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_SERVED_CHARACTERS - 1}}}"
"""Name in the model server of a model of a loaded archive: short, since a socket's path contains it."""

INNER = "."
"""Separator of the name of a loaded archive with several models and the name of a model in it."""
LOADED_MODEL_RULE = (
    "letters, digits, '.', '_' and '-', a letter or digit first, and at most "
    f"{LOADED_MODEL_CHARACTERS} characters"
)
"""Rule of `LOADED_MODEL` in words."""

ARCHIVE_ENDING = ".tar.gz"
SLASH_IN_NAME = "--"
"""Replacement of each slash in an archive's path, without its ending, in the name of its model."""

LABEL = r"[A-Za-z0-9_]{1,255}"
SIGNATURE = r"[\x21-\x7e]{1,255}"
VERSION = r"[0-9]{1,19}"
SHORT_VERSION = r"[0-9]{1,18}"
"""Version that is below `HIGHEST_VERSION` by its length alone."""

S3_ADDRESS = r"s3://([A-Za-z0-9][A-Za-z0-9._-]{1,254})(?:/(.*))?"
"""Bucket, and a key or the prefix of keys."""

USER_IN_URL = re.compile(r"(?<=://)[^/?#\s]*@")
"""User and password in an address, which no message may show."""

HIGHEST_VERSION = 2**63 - 1
METHODS = ("predict", "classify", "regress")


def is_model_name(text: str, pattern: str = MODEL) -> bool:
    """Tell if a model can have this name; by `LOADED_MODEL` one that is loaded at run time."""
    return re.fullmatch(pattern, text, re.ASCII) is not None


def is_version(text: str) -> bool:
    """Tell if ``text`` is written as a version number, which may be above `HIGHEST_VERSION`."""
    return re.fullmatch(VERSION, text, re.ASCII) is not None


def identifier(text: str) -> str:
    """Name for an input of a graph, which is that of a variable of Python, from a user's own name."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return name if name[:1].isalpha() and not keyword.iskeyword(name) else f"arg_{name}"


def are_names_of(inputs: Collection[str], given: Iterable[str]) -> bool:
    """True if these are the names of all inputs: the graph's, or the author's own ones of several."""
    named = {name if name in inputs or len(inputs) == 1 else identifier(name) for name in given}
    return named == set(inputs)


def utf8(text: str) -> str:
    """Escape lone surrogates, which JSON and scripts may bring and UTF-8 has no bytes for."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def utf8_texts(value: Any) -> Any:
    """Do so with all texts in a value as JSON has them, names included."""
    match value:
        case str():
            return utf8(value)
        case Mapping():
            return {utf8(str(name)): utf8_texts(inner) for name, inner in value.items()}
        case list() | tuple():
            return list(map(utf8_texts, value))
    return value


def printable(text: str) -> str:
    """Escape control characters, so that ``text`` stays on its line."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def similar(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The one of ``known`` most like ``word``; ``least`` is the similarity that it needs, from 0 to 1."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=least)), None)


def one_entry(text: str) -> str:
    """Indent further lines of ``text``, so that none looks like an entry of the log."""
    return "\n  ".join(map(printable, text.expandtabs().split("\n")))
