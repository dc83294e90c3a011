"""Request bodies to Python values, with TF Serving's reading of JSON: the first step of a REST call.

TF Serving's parser takes NaN and Infinity, stops after the first document, and names the offset of an
error. orjson reads what needs none of that; `Reader` is the slow, exact one behind it.

Of equal keys at the top level of a body the first counts, as in TF Serving; inside rows and features
the last one does.
"""

import re
from typing import Any

import orjson

from tfs_proxy.embedded.errors import invalid
from tfs_proxy.memory import STRING_BYTES, MemoryBudget
from tfs_proxy.serving_json.documents import BYTE_ORDER_MARK
from tfs_proxy.serving_json.simd import top_level_keys

_SPACE = re.compile(rb"[ \t\n\r]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_FRACTION = re.compile(rb"[0-9]+")
_EXPONENT = re.compile(rb"[eE][+-]?")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX = re.compile(rb"[0-9a-fA-F]{4}")
_SPECIAL = re.compile(rb"-?(?:NaN|Infinity|Inf(?!i))")
_BEGUN = re.compile(rb"-?(?:Na?|I(?:n(?:f(?:i(?:n(?:it?)?)?)?)?)?)?")
"""What the parser has read of such a word when it sees that it is another."""

_ESCAPES = {
    b'"': b'"',
    b"\\": b"\\",
    b"/": b"/",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
}
_WORDS = {ord("t"): (b"true", True), ord("f"): (b"false", False), ord("n"): (b"null", None)}
_HIGH, _LOW, _BEYOND = range(0xD800, 0xDC00), range(0xDC00, 0xE000), 0x10000
_TOP_LEVEL_KEYS = frozenset({"signature_name", "instances", "inputs", "examples", "context"})
_MOST_DEPTH = 100_000
"""Deeper than any tensor could be. TF Serving has no limit but its stack, for it reads by recursion."""
_COUNTED_BYTES = 1 << 17
"""Smaller bodies become a few megabytes at most."""
_MAX_UNSIGNED = 2**64 - 1
_MIN_SIGNED = -(2**63)


def parse(body: bytes, budget: MemoryBudget) -> Any:
    """The first JSON document of a body.

    Raises ServingError (INVALID_ARGUMENT) with the parser's text and offset, and what the budget does.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    if len(body) >= _COUNTED_BYTES:
        budget.take_json(body)
        # Each string becomes bytes in an array beside what was parsed.
        budget.take(body.count(b'"') // 2 * STRING_BYTES)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Reader(body).document()
    return Reader(body).document() if _may_repeat_a_key(body, document) else document


def _may_repeat_a_key(body: bytes, document: Any) -> bool:
    """Whether the top level of a body, which orjson has read as ``document``, may have equal keys.

    orjson keeps the last of them. Only the keys that TF Serving looks up matter.
    """
    if type(document) is not dict:
        return False
    repeated = [key for key in _TOP_LEVEL_KEYS & document.keys() if body.count(b'"%b"' % key.encode()) > 1]
    if not repeated:
        return False
    # A key that stands in the body twice may be an input's name too, so the top level is looked at.
    keys = top_level_keys(body)
    return keys is None or len(set(keys)) < len(keys)


class _Malformed(Exception):
    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class Reader:
    """Reads one document, without recursion, so that no depth of nesting can exhaust the stack."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = len(BYTE_ORDER_MARK) if body.startswith(BYTE_ORDER_MARK) else 0

    def document(self) -> Any:
        """The document; what follows it is not looked at."""
        try:
            self._skip_space()
            if self._peek() in {b"", b"\0"}:
                raise _Malformed("The document is empty.", self._at)  # noqa: TRY301
            return self._nested()
        except _Malformed as error:
            raise invalid(f"JSON Parse error: {error} at offset: {error.offset}") from error

    def _nested(self) -> Any:
        """A value and all that is in it: open lists and objects wait on a stack of our own."""
        open_: list[tuple[Any, str | None]] = []
        key: str | None = None
        while True:
            value = self._opened()
            if len(open_) >= _MOST_DEPTH and isinstance(value, list | dict):
                raise invalid("JSON Parse error: The document is nested too deeply")
            if isinstance(value, list | dict) and not self._closes(value):
                open_.append((value, key))
                key = self._key() if isinstance(value, dict) else None
                continue
            while open_:
                holder, outer = open_[-1]
                _put(holder, key, value, is_top=len(open_) == 1)
                if not self._ends(holder):
                    break
                value, key = holder, outer
                open_.pop()
            else:
                return value
            key = self._key() if isinstance(holder, dict) else None

    def _opened(self) -> Any:
        """A whole plain value, or an empty list or object whose bracket has been read."""
        byte = self._peek()
        if byte in {b"[", b"{"}:
            self._at += 1
            self._skip_space()
            return [] if byte == b"[" else {}
        if byte == b'"':
            return self._string()
        if byte and byte[0] in _WORDS:
            return self._word(*_WORDS[byte[0]])
        return self._number()

    def _closes(self, holder: Any) -> bool:
        if self._peek() != (b"]" if isinstance(holder, list) else b"}"):
            return False
        self._at += 1
        return True

    def _ends(self, holder: Any) -> bool:
        """Whether the holder is complete; else past its comma."""
        self._skip_space()
        byte = self._peek()
        closing = b"]" if isinstance(holder, list) else b"}"
        if byte not in (b",", closing):
            holds = "']' after an array element" if isinstance(holder, list) else "'}' after an object member"
            raise _Malformed(f"Missing a comma or {holds}.", self._at)
        self._at += 1
        if byte == b",":
            self._skip_space()
        return byte == closing

    def _key(self) -> str:
        if self._peek() != b'"':
            raise _Malformed("Missing a name for object member.", self._at)
        key = self._string()
        self._skip_space()
        if self._peek() != b":":
            raise _Malformed("Missing a colon after a name of object member.", self._at)
        self._at += 1
        self._skip_space()
        return key

    def _word(self, word: bytes, value: object) -> object:
        for letter in word:
            if self._peek() != bytes((letter,)):
                raise _Malformed("Invalid value.", self._at)
            self._at += 1
        return value

    def _number(self) -> int | float:
        start = self._at
        special = _SPECIAL.match(self._body, start)
        if special:
            self._at = special.end()
            return float(special.group().replace(b"Infinity", b"Inf"))
        whole = _NUMBER.match(self._body, start)
        if whole is None:
            begun = _BEGUN.match(self._body, start)
            raise _Malformed("Invalid value.", begun.end() if begun else start)
        self._at = whole.end()
        is_whole = True
        if self._peek() == b".":
            self._at += 1
            self._digits("Miss fraction part in number.")
            is_whole = False
        exponent = _EXPONENT.match(self._body, self._at)
        if exponent:
            self._at = exponent.end()
            self._digits("Miss exponent in number.")
            is_whole = False
        return self._converted(start, is_whole=is_whole)

    def _digits(self, text: str) -> None:
        digits = _FRACTION.match(self._body, self._at)
        if digits is None:
            raise _Malformed(text, self._at)
        self._at = digits.end()

    def _converted(self, start: int, *, is_whole: bool) -> int | float:
        """A whole number that fits 64 bits stays one; a larger one is a double."""
        text = self._body[start : self._at]
        if is_whole and len(text) <= 20:  # noqa: PLR2004
            number = int(text)
            if _MIN_SIGNED <= number <= _MAX_UNSIGNED:
                return number
        decimal = float(text)
        if decimal in {float("inf"), float("-inf")}:
            raise _Malformed("Number too big to be stored in double.", start)
        return decimal

    def _string(self) -> str:
        self._at += 1
        parts: list[bytes] = []
        while True:
            plain = _PLAIN.match(self._body, self._at)
            assert plain is not None  # noqa: S101 (the pattern matches the empty string)
            parts.append(plain.group())
            self._at = plain.end()
            byte = self._peek()
            if byte == b'"':
                self._at += 1
                return b"".join(parts).decode("utf-8", "surrogateescape")
            if byte == b"\\":
                parts.append(self._escape())
            elif byte in (b"", b"\0"):
                raise _Malformed("Missing a closing quotation mark in string.", self._at)
            else:
                raise _Malformed("Invalid encoding in string.", self._at)

    def _escape(self) -> bytes:
        start = self._at
        letter = self._body[start + 1 : start + 2]
        self._at += 2
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter != b"u":
            raise _Malformed("Invalid escape character in string.", start)
        code = self._hex(start)
        if code in _LOW:
            raise _Malformed("The surrogate pair in string is invalid.", start)
        if code in _HIGH:
            if self._body[self._at : self._at + 2] != b"\\u":
                raise _Malformed("The surrogate pair in string is invalid.", start)
            self._at += 2
            low = self._hex(start)
            if low not in _LOW:
                raise _Malformed("The surrogate pair in string is invalid.", start)
            code = _BEYOND + ((code - _HIGH.start) << 10) + (low - _LOW.start)
        return chr(code).encode()

    def _hex(self, start: int) -> int:
        digits = _HEX.match(self._body, self._at)
        if digits is None:
            raise _Malformed("Incorrect hex digit after \\u escape in string.", start)
        self._at = digits.end()
        return int(digits.group(), 16)

    def _skip_space(self) -> None:
        space = _SPACE.match(self._body, self._at)
        if space:
            self._at = space.end()

    def _peek(self) -> bytes:
        return self._body[self._at : self._at + 1]


def _put(holder: Any, key: str | None, value: Any, *, is_top: bool) -> None:
    """Put a value into the list or object around it."""
    if isinstance(holder, list):
        holder.append(value)
    elif not is_top or key not in holder:
        holder[key] = value
