"""How a call ends, and the header blocks that say so."""

from typing import NamedTuple
from urllib.parse import quote

from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.http2.header_blocks import literals

ACCEPTED = ("identity", "deflate", "gzip")
_ANSWER = (
    (":status", "200"),
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", ",".join(ACCEPTED)),
)
_PRINTED = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""What stands for itself in grpc-message, beside letters and digits: all of ASCII's but the per cent."""
_OVERHEAD_BYTES = 300
"""What a header list has beside the text, as HTTP/2 counts it: 32 for each field, and the fields."""


class Status(NamedTuple):
    """The status of a call that is not OK."""

    code: GrpcCode
    text: str


HEAD_BLOCK = literals(_ANSWER)
"""The header block in front of a message."""

OK_BLOCK = literals([("grpc-status", "0")])
"""The trailers behind a message."""


def end_block(status: Status, most_bytes: int, *, is_whole_answer: bool) -> bytes:
    """The trailers of a call that failed, which may be its whole answer.

    The text is cut to a list of ``most_bytes``, since clients fail on larger ones without a word of it.
    """
    text = _cut(quote(status.text.encode(errors="replace"), safe=_PRINTED), most_bytes - _OVERHEAD_BYTES)
    head = _ANSWER if is_whole_answer else ()
    return literals([*head, ("grpc-status", str(int(status.code))), ("grpc-message", text)])


def refusal_block(status: int) -> bytes:
    """The answer in HTTP's own words to what is no call of gRPC."""
    return literals([(":status", str(status))])


def _cut(text: str, most: int) -> str:
    """The beginning of a percent-encoded text, never with half a letter at its end."""
    if len(text) <= most:
        return text
    kept = text[: max(0, most)]
    return kept[: kept.rindex("%")] if "%" in kept[-2:] else kept
