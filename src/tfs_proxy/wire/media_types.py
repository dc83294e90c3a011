"""Media types as HTTP writes them: Content-Type, Accept, and constants for those that the code names.

`tfs_proxy.data.registry` has the conversions of each.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from mimetypes import MimeTypes

from msgspec import Struct, field

from tfs_proxy.values.errors import UnsupportedMediaType, from_client

JSON = "application/json"
JSON_LINES = "application/jsonlines"
JSONS = "application/jsons"
CSV = "text/csv"
NPY = "application/x-npy"
NPZ = "application/x-npz"
JPEG = "image/jpeg"
PNG = "image/png"
IMAGE = "application/x-image"
BYTES = "application/octet-stream"
TEXT = "text/plain"
TF_EXAMPLE = "application/x-tfexample"
TF_RECORD = "application/x-tfrecord"
RECORDIO = "application/x-recordio-protobuf"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
OPEN_METRICS = "application/openmetrics-text"
GRPC = "application/grpc"

_ENDINGS = {
    NPY: (".npy",),
    NPZ: (".npz",),
    JSON_LINES: (".jsonl", ".ndjson"),
    TF_RECORD: (".tfrecord", ".tfrecords"),
    "image/webp": (".webp",),
}
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # noqa: S105
_TYPE = re.compile(rf"\s*({_TOKEN}/{_TOKEN})\s*")
# NOTE: a lone ; or , is not a token, but `delimiter=;` is what people write.
_LIST = rf"{_TOKEN}(?:,{_TOKEN})*"
# NOTE: so is a list, as in `columns=a,b`.
_PARAMETER = re.compile(rf';\s*(?:({_TOKEN})=({_LIST}|"(?:[^"\\]|\\.)*"|[;,](?=\s*(?:;|$))))?\s*', re.DOTALL)
_ELEMENT = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"|")+')
QUALITY = re.compile(r"0?\.\d{1,3}|0\.?|1(\.0{0,3})?")
"""Weight of a range of Accept; clients also write it without the zero before the point."""

# NOTE: Java's HttpURLConnection sends a lone * among its ranges.
_LONE_STAR = re.compile(r"\A\s*\*\s*(?=;|\Z)")
_SHOWN_CHARACTERS = 100


class MediaType(Struct, frozen=True):
    """A media type in lower case with its parameters (RFC 9110, 8.3.1).

    ``name`` is the type as the client wrote it; ``type`` is the same, or what it is an alias of. Parameter
    names are lower case, their values as sent, unquoted.
    """

    type: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    name: str = ""


def parse(header: str | None) -> MediaType:
    """Read a Content-Type header; none or an empty one means application/json.

    Raises UnsupportedMediaType if it is not a media type at all.
    """
    if header is None or not header.strip():
        return MediaType(JSON, name=JSON)
    parsed = _parse(header)
    if parsed is None:
        raise UnsupportedMediaType(f"Content-Type {shown(header)} is not a media type.")
    return parsed


def bare(header: str | None) -> str:
    """The type in a header, without parameters, in lower case; "" for none."""
    return (header or "").partition(";")[0].strip().lower()


def of_file(name: str) -> str | None:
    """The type that the ending of a file's name says, None if it says none."""
    return _file_types().guess_type(name)[0]


@cache
def _file_types() -> MimeTypes:
    types = MimeTypes()
    for name, endings in _ENDINGS.items():
        for ending in endings:
            types.add_type(name, ending)
    return types


def best(accept: str | None, available: Sequence[str]) -> str | None:
    """Type of ``available`` that the Accept header likes best (RFC 9110, 12.5.1); None if it takes none.

    The best quality wins, then the more specific range, then the one named first, then the order
    of ``available``; no header, an empty one and ``*/*`` mean the first of ``available``. Parameters
    other than ``q`` are ignored. The result is the name that the client used.
    """
    if accept is None or not accept.strip():
        return available[0]
    ranges = list(_ranges(accept))
    winner = max(
        ((_rank(candidate, ranges), -position, candidate) for position, candidate in enumerate(available)),
        key=lambda ranked: ranked[:2],
    )
    return winner[2] if winner[0][0] > 0 else None


def preferred(accept: str | None, default: str) -> str:
    """Type to ask a script for: only the script knows what it can give.

    The first type of the best quality that Accept names; ``default`` if a wildcard comes before it, and
    without an Accept.
    """
    ranges = [media_range for media_range in _ranges(accept or "") if media_range.quality > 0]
    winner = max(ranges, key=lambda media_range: (media_range.quality, -media_range.position), default=None)
    return default if winner is None or "*" in winner.type else winner.type


def unreadable(kind: MediaType, how: str, readable: Iterable[str]) -> UnsupportedMediaType:
    """Error for a type that can't be read in a certain way (``without a script``), unlike ``readable``."""
    text = f"Content-Type {shown(kind.name)} can't be read {how}: send {listed(readable)}."
    if kind.type == FORM:
        text += " curl -d sends it by default: add -H 'Content-Type: application/json'."
    return UnsupportedMediaType(text)


def listed(names: Iterable[str]) -> str:
    """Phrase of names for an error text: ``a, b or c``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def shown(text: str) -> str:
    """Shorten a client's text for an error text."""
    return from_client(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def is_named(media_type: str, accept: str | None) -> bool:
    """True if an Accept header has this type by its name, and not only a range that covers it."""
    return any(media_range.type == media_type for media_range in _ranges(accept or ""))


class _Range(Struct, frozen=True):
    """Element of Accept: ``*/*``, ``text/*`` or a type, its quality and its place."""

    type: str
    quality: float
    position: int

    def matches(self, candidate: str) -> int:
        """Specificity with which it covers a type: 0 not at all, 1 ``*/*``, 2 ``text/*``, 3 by name."""
        if self.type == candidate:
            return 3
        if self.type.endswith("/*") and candidate.startswith(self.type[:-1]):
            return 2
        return 1 if self.type == "*/*" else 0


def _ranges(accept: str) -> Iterable[_Range]:
    for position, element in enumerate(_ELEMENT.findall(accept)):
        parsed = _parse(_LONE_STAR.sub("*/*", element))
        if parsed is None:
            continue
        quality = parsed.parameters.get("q", "1")
        if QUALITY.fullmatch(quality):
            yield _Range(parsed.name, float(quality), position)


def _rank(candidate: str, ranges: Sequence[_Range]) -> tuple[float, int, int]:
    """Quality, specificity and (negative) place of the range that decides on ``candidate``."""
    matching = [
        (media_range.matches(candidate), -media_range.position, media_range.quality)
        for media_range in ranges
        if media_range.matches(candidate)
    ]
    specificity, position, quality = max(matching, default=(0, 0, 0.0))
    return (quality, specificity, position)


def _parse(text: str) -> MediaType | None:
    head = _TYPE.match(text)
    if head is None:
        return None
    name = head[1].lower()
    end = head.end()
    parameters = {}
    while end < len(text):
        parameter = _PARAMETER.match(text, end)
        if parameter is None:
            return None
        if parameter[1]:
            value = parameter[2]
            if value.startswith('"'):
                value = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
            parameters[parameter[1].lower()] = value
        end = parameter.end()
    return MediaType(name, parameters, name)
