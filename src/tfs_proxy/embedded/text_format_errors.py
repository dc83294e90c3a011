"""What is wrong with a file in protobuf's text form, as the C++ parser of the official server says it.

Python's parser finds the same mistakes. It differs in where it sees an unknown field, or the end of the
file, and in its words for a value of another type.
"""

import re

from google.protobuf import text_format

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_WORD = re.compile(r"\w+")
_LINE_QUOTED = re.compile(r"^'.*?': (?=Expected |Couldn't |Enum |Integer )", re.DOTALL)
_ANOTHER_VALUE = re.compile(r"^Expected (\w+) but found: '(.*)'$", re.DOTALL)
_UNKNOWN_FIELD = "has no field named"
_UNCLOSED = ('Expected "}".', 'Expected ">".')


def described(error: text_format.ParseError, text: str, message_name: str) -> str:
    """The mistake with its line and column, counted from 1; ``message_name`` is the full name of the type."""
    line, column = error.GetLine(), error.GetColumn()
    words = str(error).partition(" : ")[2] or str(error)
    prefix = f"Error parsing text-format {message_name}:"
    if line is None or column is None:
        return f"{prefix} {words}"
    start = _offset(text, line, column)
    words = _ANOTHER_VALUE.sub(r"Expected \1, got: \2", _LINE_QUOTED.sub("", words))
    if _UNKNOWN_FIELD in words:
        start = _behind_word(text, start)
    elif words in _UNCLOSED and _is_blank(text[start + 1 :]):
        start, words = len(text), "Expected identifier, got: "
    line, column = _line_and_column(text, start)
    return f"{prefix} {line}:{column}: {words}"


def _offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(earlier) + 1 for earlier in lines[: line - 1]) + column - 1


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _behind_word(text: str, start: int) -> int:
    """Where the token behind a name begins: the C++ parser has read the name by then."""
    word = _WORD.match(text, start)
    blank = _BLANK.match(text, word.end() if word else start)
    return blank.end() if blank else start


def _is_blank(text: str) -> bool:
    return _BLANK.fullmatch(text) is not None
