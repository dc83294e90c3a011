"""First lines, paths and headers that no decent client sends."""

from collections.abc import Iterable

from attack.raw_http.case import (
    ABSENT,
    ALLOWED,
    GOOD,
    LENIENT,
    MALFORMED,
    REFUSED,
    Case,
    framed,
    get,
    post,
    request,
)


def request_lines() -> Iterable[Case]:
    yield Case("a good GET", get(), GOOD)
    yield Case("HTTP/1.1 without Host", request("GET {get} HTTP/1.1", host=False), MALFORMED, LENIENT)
    yield Case("two Hosts", get("{get}", "Host: y"), REFUSED, LENIENT)
    yield Case("an empty Host", request("GET {get} HTTP/1.1", "Host:", host=False), ALLOWED)
    yield Case("a Host with a blank", request("GET {get} HTTP/1.1", "Host: a b", host=False), ALLOWED)
    yield Case("HTTP/1.0", request("GET {get} HTTP/1.0", host=False), GOOD)
    yield Case("HTTP/0.9", b"GET {get}\r\n\r\n", ALLOWED)
    for version in "HTTP/2.0 HTTP/1.2 HTTP/9.9 HTTP/1.10 HTTP/1 HTTP/ http/1.1 ICY/1.1 HTTP/-1.1".split():
        yield Case(f"version {version}", request(f"GET {{get}} {version}"), ALLOWED)
    yield Case("a version of 5,000 digits", request(f"GET {{get}} HTTP/1.{'1' * 5000}"), REFUSED)
    yield Case("no version, two blanks", request("GET {get}  "), ALLOWED)
    yield Case("four words", request("GET {get} x HTTP/1.1"), ABSENT | REFUSED)
    yield Case("tabs for blanks", request("GET\t{get}\tHTTP/1.1"), ALLOWED)
    yield Case("only a method", request("GET"), REFUSED | ABSENT)
    yield Case("a blank before the method", request(" GET {get} HTTP/1.1"), ALLOWED | ABSENT)
    yield Case("an empty line first", b"\r\n" + get(), ALLOWED)
    yield Case("a hundred empty lines first", b"\r\n" * 100 + get(), ALLOWED)
    for method in ("get", "BREW", "G@T", "CONNECT", "TRACE", "DELETE", "PRI", "X" * 10_000, "GÉT"):
        yield Case(f"method {method[:10]}", request(f"{method} {{get}} HTTP/1.1"), ALLOWED | ABSENT)
    yield Case("a NUL in the path", get("{get}\0"), REFUSED | ABSENT)
    yield Case("raw bytes in the path", get("{get}\xff\xfe"), REFUSED | ABSENT)
    yield Case("a path of 100,000 bytes", get("{get}" + "a" * 100_000), REFUSED | ABSENT)
    yield Case("a query of 60,000 bytes", get("{get}?" + "a=b&" * 15_000), ALLOWED | ABSENT)
    yield Case("a CR in the path", get("{get}\rX: y"), REFUSED | ABSENT)


def paths() -> Iterable[Case]:
    anything = ALLOWED | ABSENT
    yield Case("//ping", get("/{get}"), ABSENT)
    yield Case("/%2fping", get("/%2f{get}"), ABSENT)
    yield Case("/./ping", get("/.{get}"), anything)
    yield Case("/x/../ping", get("/x/..{get}"), anything)
    yield Case("a path of the control API", request("POST /workers/1/../..{get} HTTP/1.1"), ABSENT | REFUSED)
    yield Case("/../../etc/passwd", get("/../../../../etc/passwd"), ABSENT | REFUSED)
    yield Case("%2e%2e to /etc/passwd", get("/%2e%2e/%2e%2e/%2e%2e/etc/passwd"), ABSENT | REFUSED)
    yield Case("a trailing slash", get("{get}/"), anything)
    yield Case("a path parameter", get("{get};a=b"), anything)
    yield Case("a broken escape", get("{get}%zz"), ABSENT | REFUSED)
    yield Case("an escaped NUL", get("{get}%00"), ABSENT | REFUSED)
    yield Case("an escaped line end", get("{get}%0d%0aX:%20y"), ABSENT | REFUSED)
    yield Case("an absolute URI", get("http://x{get}"), anything)
    yield Case("another's absolute URI", get("http://example.com:99999{get}"), anything)
    yield Case("a file URI", get("file:///etc/passwd"), ABSENT | REFUSED)
    yield Case("a star", request("OPTIONS * HTTP/1.1"), anything)
    yield Case("a path without a slash", get("ping"), ABSENT | REFUSED)
    for model in ("9" * 5000, "-1", "0x1", "99999999999999999999", "1e3", "%31", "٣"):
        path = f"/v1/models/half_plus_two/versions/{model}".encode().decode("latin-1")
        yield Case(f"model version {model[:20]}", get(path), anything)
    yield Case("a label of 5,000 letters", get("/v1/models/half_plus_two/labels/" + "l" * 5000), anything)
    yield Case("no model name", get("/v1/models/"), anything)
    yield Case("a path of 2,000 folders", get("/a" * 2000), ABSENT | REFUSED)


def headers() -> Iterable[Case]:
    yield Case(
        "obs-fold",
        get("{get}", "X-A: b\r\n c"),
        MALFORMED,
        {"nginx": REFUSED | GOOD, "pipeline": REFUSED | GOOD},
    )
    yield Case("obs-fold of a length", framed("Content-Length:\r\n 20"), REFUSED)
    yield Case("bare LF", request("GET {get} HTTP/1.1", end="\n"), REFUSED, {"nginx": GOOD, "pipeline": GOOD})
    yield Case("bare CR", request("GET {get} HTTP/1.1", end="\r"), REFUSED, ends=True)
    yield Case("a blank before the colon", get("{get}", "X-A : b"), REFUSED | GOOD)
    yield Case("a blank before the colon of a length", framed("Content-Length : 20"), REFUSED)
    yield Case("no colon", get("{get}", "nonsense"), REFUSED | GOOD)
    yield Case("no name", get("{get}", ": b"), REFUSED | GOOD)
    yield Case("a NUL in a value", get("{get}", "X-A: b\0c"), REFUSED | GOOD)
    yield Case("a NUL in a name", get("{get}", "X\0A: b"), REFUSED | GOOD)
    yield Case("Latin-1 in a value", get("{get}", "X-A: \xe9\xff"), ALLOWED)
    yield Case("control characters in a value", get("{get}", "X-A: \x01\x7f"), ALLOWED)
    yield Case("a header of 100,000 bytes", get("{get}", "X-A: " + "a" * 100_000), REFUSED, LENIENT)
    yield Case("a name of 100,000 bytes", get("{get}", "a" * 100_000 + ": b"), REFUSED, LENIENT)
    yield Case("5,000 headers", get("{get}", *(f"X-{n}: {n}" for n in range(5000))), REFUSED | GOOD)
    yield Case(
        "1 MB of headers", get("{get}", *(f"X-{n}: {'a' * 1000}" for n in range(1000))), REFUSED, LENIENT
    )
    yield Case("an underscore name", get("{get}", "Content_Length: 5"), ALLOWED)
    yield Case("Connection: close, keep-alive", get("{get}", "Connection: keep-alive"), ALLOWED)
    yield Case("an unknown upgrade", get("{get}", "Upgrade: nonsense/1"), ALLOWED)
    yield Case("h2c upgrade", get("{get}", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), ALLOWED)
    yield Case("a WebSocket", get("{get}", "Upgrade: websocket", "Sec-WebSocket-Key: x"), ALLOWED | {426})
    yield Case("Range of nonsense", get("{get}", "Range: bytes=9-1,-,0-"), ALLOWED | {206, 416})
    yield Case("X-Forwarded-For of 8,000 addresses", get("{get}", "X-Forwarded-For: " + "1," * 4000), ALLOWED)
    yield Case("Expect of nonsense", post("Expect: nonsense"), ALLOWED)
    yield Case("Expect: 100-continue with a body", post("Expect: 100-continue"), ALLOWED)
