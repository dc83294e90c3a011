"""Lengths, chunks, bodies and connections that no decent client has."""

import gzip
from collections.abc import Iterable

from attack.fronts import BODY
from attack.raw_http.case import (
    ABSENT,
    ALLOWED,
    ATTRIBUTES,
    CHUNK,
    CUT,
    GOOD,
    LENIENT,
    MALFORMED,
    REFUSED,
    SILENT,
    SMUGGLED,
    Case,
    chunked,
    framed,
    get,
    post,
    request,
)


def lengths() -> Iterable[Case]:
    """Where the body ends: Content-Length, with Transfer-Encoding, and without either."""
    length = f"Content-Length: {len(BODY)}"
    yield Case("a good POST", post(), GOOD)
    yield Case("a length and chunked", chunked(CHUNK + b"0\r\n\r\n", length), REFUSED)
    yield Case(
        "chunked and a length",
        framed(length, "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
        REFUSED,
    )
    yield Case("two equal lengths", framed(length, length), ALLOWED)
    yield Case("two lengths", framed(length, "Content-Length: 3"), REFUSED)
    yield Case("a list of lengths", framed("Content-Length: 20, 3"), REFUSED)
    for number in (*"-1|+20|0x14|20.0|2 0||٢|1e1|20;|18446744073709551616".split("|"), "9" * 30, "9" * 5000):
        text = f"Content-Length: {number}".encode().decode("latin-1")
        yield Case(f"length {number[:20]!r}", framed(text), REFUSED)
    waits = {"embedded": REFUSED | {SILENT}}  # it has no limit, as TensorFlow Serving: the body may come yet
    yield Case("a length of 9 EB", framed("Content-Length: 9223372036854775807"), REFUSED, waits)
    yield Case("no length", framed(), REFUSED | {200, 415})
    yield Case("less than the length", framed("Content-Length: 100"), REFUSED | {499}, ends=True)
    yield Case("more than the length", framed("Content-Length: 20", body=BODY + SMUGGLED), GOOD)
    yield Case("a GET with a body", request("GET {get} HTTP/1.1", length, body=BODY), ALLOWED)
    yield Case(
        "a GET with chunks",
        request("GET {get} HTTP/1.1", "Transfer-Encoding: chunked", body=CHUNK + b"0\r\n\r\n"),
        ALLOWED,
    )
    yield Case(
        "HTTP/1.0 with chunks",
        framed("Transfer-Encoding: chunked", body=CHUNK + b"0\r\n\r\n", version="1.0"),
        ALLOWED,
    )


def chunks() -> Iterable[Case]:
    last = b"0\r\n\r\n"
    yield Case("good chunks", chunked(CHUNK + last), GOOD)
    yield Case("one byte a chunk", chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + last), GOOD)
    yield Case("chunks with extensions", chunked(CHUNK.replace(b"\r\n", b";a=b\r\n", 1) + last), ALLOWED)
    yield Case(
        "an extension of 100,000 bytes",
        chunked(CHUNK.replace(b"\r\n", b";" + b"a" * 100_000 + b"\r\n", 1) + last),
        ALLOWED,
    )
    yield Case("trailers", chunked(CHUNK + b"0\r\nX-A: b\r\n\r\n"), ALLOWED)
    yield Case("trailers that frame", chunked(CHUNK + b"0\r\nContent-Length: 3\r\n\r\n"), ALLOWED)
    yield Case("1 MB of trailers", chunked(CHUNK + b"0\r\n" + b"X-A: b\r\n" * 131_072 + b"\r\n"), ALLOWED)
    for size in (*b"-14|0x14|+14| 14|14 |g||ffffffffffffffff|1_4|14\0".split(b"|"), b"1" * 17, b"f" * 5000):
        sent = size + b"\r\n" + BODY + b"\r\n" + last
        yield Case(
            f"chunk size {size[:20]!r}",
            chunked(sent),
            ALLOWED if size.strip() == b"14" else REFUSED,
            ends=True,
        )
    yield Case("a chunk longer than its size", chunked(b"5\r\n" + BODY + b"\r\n" + last), REFUSED, ends=True)
    yield Case("chunks with bare LF", chunked(CHUNK.replace(b"\r\n", b"\n") + b"0\n\n"), ALLOWED, ends=True)
    yield Case("chunks that end early", chunked(CHUNK), REFUSED | {499}, ends=True)
    yield Case("100,000 chunks of a blank", chunked(b"1\r\n \r\n" * 100_000 + CHUNK + last), ALLOWED)
    encodings = (
        "chunked, chunked|gzip, chunked|chunked, identity|identity|xchunked|chunked;a=b|\x0bchunked|CHUNKED|"
    )
    for encoding in encodings.split("|"):
        taken = encoding in {"CHUNKED", "identity", ""}
        yield Case(
            f"encoding {encoding!r}",
            chunked(CHUNK + last, encoding=encoding),
            ALLOWED if taken else REFUSED | {415},
            LENIENT,
        )
    twice = chunked(CHUNK + last, "Transfer-Encoding: identity")
    yield Case("two Transfer-Encodings", twice, REFUSED)


def contents() -> Iterable[Case]:
    client = frozenset({400, 404, 405, 406, 413, 415, 424, 431, 501})
    for attribute in ("tfs-method=classify", "a=b"):
        name = f"two {ATTRIBUTES}, {attribute}"
        sent = post(f"{ATTRIBUTES}: {attribute}", f"{ATTRIBUTES}: tfs-model-name=x")
        free = {"embedded": GOOD, "nginx": MALFORMED | GOOD | client}
        yield Case(name, sent, MALFORMED, free)
    echo = {"pipeline": client | GOOD, "embedded": client | GOOD}
    for value in (
        "tfs-model-version=" + "9" * 5000,
        "tfs-model-name=../x",
        "tfs-method=\xe9",
        "tfs-method=," * 500,
    ):
        yield Case(f"attribute {value[:30]!r}", post(f"{ATTRIBUTES}: {value}"), client, echo)
    for kind in (
        "",
        "text",
        "/",
        "application/json; charset=nonsense",
        "a/b;" * 2000,
        "application/json, text/csv",
        "\xff/\xff",
    ):
        yield Case(f"type {kind[:30]!r}", post(kind=kind), client | GOOD)
    for accept in ("x", "*/*;q=9", "application/json;q=", ",".join(["a/b"] * 2000)):
        yield Case(f"Accept {accept[:30]!r}", post(f"Accept: {accept}"), client | GOOD)
    for coding in ("gzip", "gzip, gzip", "deflate", "x" * 5000):
        yield Case(f"coding {coding[:20]!r} of plain JSON", post(f"Content-Encoding: {coding}"), client, echo)
    cut_off = gzip.compress(BODY)[:-4]
    yield Case("gzip that is cut off", post("Content-Encoding: gzip", body=cut_off), client, echo)
    for words in (
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{" * 100_000,
        b'{"instances": [1' + b"0" * 5000 + b"]}",
        b"\0" * 1000,
    ):
        yield Case(
            f"body {words[:20]!r} ({len(words)} bytes)", post(body=words), client, {"pipeline": client | GOOD}
        )
    npy = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (0, 999999999999999999, 999999999999999999), }"
    yield Case(
        "npy of impossible dimensions",
        post(body=npy.ljust(127) + b"\n", kind="application/x-npy"),
        client,
        echo,
    )


def connections() -> Iterable[Case]:
    refused = REFUSED | ABSENT
    yield Case("nothing", b"", frozenset({CUT, 400, 408}), ends=True)
    yield Case("one byte", b"G", frozenset({CUT, 400, 408}), ends=True)
    yield Case("half a head", b"GET {get} HTTP/1.1\r\nHost", frozenset({CUT, 400, 408}), ends=True)
    yield Case("TLS", bytes.fromhex("16030100c8010000c40303") + bytes(200), refused, ends=True)
    yield Case("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), refused, ends=True, most=2)
    yield Case("an SSH greeting", b"SSH-2.0-OpenSSH_9.6\r\n", refused, ends=True)
    yield Case("10,000 NULs", bytes(10_000), refused, ends=True)
    yield Case("1 MB of a", b"a" * 1_000_000, refused, ends=True)
    yield Case("1 MB of line ends", b"\r\n" * 500_000, refused, ends=True, most=2)
    yield Case("a PROXY line", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + get(), refused)
    kept = b"GET {get} HTTP/1.1\r\nHost: x\r\n\r\n"
    yield Case("20 in a pipeline", kept * 19 + get(), GOOD, most=20)
    torn = {"embedded": GOOD | MALFORMED}  # it parses what arrived together before it answers the first
    yield Case("nonsense after a good one", kept + b"nonsense\r\n\r\n", GOOD, torn, most=2)
