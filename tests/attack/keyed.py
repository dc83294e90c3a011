"""Requests with almost a key, raw, at the doors of a server that asks for one."""

import contextlib
import socket
from itertools import product
from pathlib import Path

from attack.findings import Finding
from attack.fronts import BODY
from support.multi_model import script_model
from support.stack import Stack

KEY, REACHED = "aN" * 16, b"the script was reached"
SCRIPT = f"""
def model_fn(folder):
    return None


def transform_fn(model, data, kind, accept):
    return {REACHED.decode()!r}, "text/plain"
"""
WRONG = KEY.swapcase()
HEADERS = {
    "none": "",
    "another case": f"X-Api-Key: {WRONG}\r\n",
    "another case of a bearer": f"AUTHORIZATION: Bearer {WRONG}\r\n",
    "twice": f"X-Api-Key: {WRONG}\r\nX-Api-Key: {KEY[:-1]}\r\nx-api-key: ann\r\n",
    "two headers": f"X-Api-Key: {WRONG}\r\nAuthorization: Bearer {WRONG}\r\n",
    "an entry of the map": f"X-Api-Key: admin ann {WRONG}\r\nAuthorization: admin ann Bearer {WRONG}\r\n",
    "what a map says of no key": "X-Api-Key: ?\r\nAuthorization: ?\r\n",
    "words of a map": "X-Api-Key: default\r\nAuthorization: volatile\r\n",
    "a pattern": "X-Api-Key: ~.*\r\nAuthorization: Bearer .*\r\n",
    "variables": "X-Api-Key: $caller\r\nAuthorization: Bearer ${http_host}\r\n",
    "folded": f"X-Api-Key:\r\n {WRONG}\r\n",
    "a space before the colon": f"X-Api-Key : {WRONG}\r\n",
    "line ends": f"X-Api-Key: x\nadmin ann {WRONG}\n{WRONG}\r\n",
    "a carriage return": f"X-Api-Key: x\radmin ann {WRONG}\r\n",
    "zeros": f"X-Api-Key: {WRONG}\0\r\n",
    "nothing": "X-Api-Key:\r\nAuthorization: \r\n",
    "ten thousand": f"X-Api-Key: {'a' * 10_000}\r\n",
    "private headers": "X-Tfs-Proxy-Caller: ann\r\nX-Accel-Redirect: @python\r\n",
    "another path": "X-Original-URL: /ping\r\nX-Rewrite-URL: /ping\r\nX-Forwarded-Prefix: /ping\r\n",
    "another method": "X-HTTP-Method-Override: OPTIONS\r\n",
    "another host": "X-Forwarded-Host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\n",
}
LINES = (
    "POST /invocations HTTP/1.1",
    "POST /invocations HTTP/1.0",
    "POST http://localhost/invocations HTTP/1.1",
    "POST /%69nvocations?/ping HTTP/1.1",
    "POST /ping/../invocations HTTP/1.1",
    "POST /.refused/../invocations HTTP/1.1",
    "POST /invocations%0a/.refused/ HTTP/1.1",
    "POST /invocations#/../ping HTTP/1.1",
    "POST /console/main.js/../../invocations HTTP/1.1",
    "GET /console/any.js HTTP/1.1",
    "GET / HTTP/1.1",
    "OPTIONS /invocations HTTP/1.1",
)
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
LENGTH = f"Content-Length: {len(BODY)}\r\nContent-Type: application/json\r\n"
BEHIND = b"POST /invocations HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + LENGTH.encode() + b"\r\n" + BODY
"""The same once more on the connection, without any key."""


def answers(stack: Stack, sent: bytes) -> bytes:
    """All that comes back on a connection of its own, until the server closes it or falls silent."""
    received = b""
    with socket.create_connection((stack.host, stack.port), 5) as link, contextlib.suppress(OSError):
        link.sendall(sent)
        while part := link.recv(65536):
            received += part
    return received


def attack(folder: Path) -> list[Finding]:
    """Each header at each line, with and without an upgrade, before a request without a key and behind a good one."""
    (folder / "keys").write_text(f"ann {KEY}")
    archive = script_model(folder / "model.tar.gz", SCRIPT)
    stack = Stack(str(archive), env={"TFS_PROXY_API_KEYS": str(folder / "keys")})
    good = BEHIND.replace(b"close\r\n", f"keep-alive\r\nX-Api-Key: {KEY}\r\n".encode())
    tried = list(product(LINES, HEADERS.items(), ("", UPGRADE)))
    through = []
    try:
        stack.wait_ready()
        for line, (name, header), upgrade in tried:
            head = f"{line}\r\nHost: a\r\n{header}{upgrade}{LENGTH}\r\n".encode("latin-1")
            if REACHED in answers(stack, head + BODY + BEHIND):
                through.append(f"{line} with {name}")
        behind = answers(stack, good + BEHIND)
        held = behind.count(REACHED) == 1 and behind.count(b" 401 ") == 1
        return [
            Finding("almost a key", "nginx", len(tried), len(tried) - len(through), "; ".join(through)),
            Finding("a request behind one with a key", "nginx", 1, int(held), behind.decode("latin-1")),
            Finding("keys in the log", "nginx", 1, int(KEY not in stack.log)),
        ]
    finally:
        stack.close()
