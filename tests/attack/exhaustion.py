"""Uses up what a machine has: connections of slow and silent clients, and descriptors."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from attack.findings import Finding
from attack.fronts import BODY, Front, front_of, stack_of
from attack.memory import MEGABYTE, anonymous_bytes

CROWD = 260
IDLE = 1100
DESCRIPTORS = 1024
ASKED = 10
LEAVERS, LEAVE_SECONDS, LEAVER_BYTES = 1000, 10.0, 100_000
LEFT_MB = 20
"""Memory that all processes may hold more after they have left."""
PATIENCE_SECONDS = 10.0
"""How long a good client waits beside the bad ones."""
HEAD = "POST {post} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
STARTS = {
    "one byte each": "G",
    "heads that stall": "POST {post} HTTP/1.1\r\nHost: x\r\nX-",
    "bodies that stall": HEAD.replace("{length}", "1000") + "{",
    "Expect that waits": HEAD.replace("{length}", "1000\r\nExpect: 100-continue"),
}


def slow_clients(front: Front) -> list[Finding]:
    """One line per way to be slow: while `CROWD` clients are, others are answered."""
    findings = []
    for name, start in STARTS.items():
        sent = start.replace("{post}", front.post).encode()
        with crowd(front, CROWD, sent) as held:
            findings.append(_asked(f"{CROWD} clients, {name}", front, f"{held} connected; "))
    return findings


def leavers(front: Front) -> list[Finding]:
    """Clients that send a whole request to the workers, and leave: 1,000 in ten seconds, after a tenth of them."""
    sent = HEAD.replace("Host: x", "Host: x\r\nX-Tfs-Proxy-Timing: 1").replace("{post}", front.post)
    body = BODY.ljust(LEAVER_BYTES)
    request = sent.replace("{length}", str(len(body))).encode() + body
    held: list[int] = []
    for count in (LEAVERS // 10, LEAVERS):
        for _ in range(count):
            with contextlib.suppress(OSError), front.connect() as link:
                link.sendall(request)
                time.sleep(LEAVE_SECONDS / LEAVERS)
        served = front.serves(PATIENCE_SECONDS)
        held.append(anonymous_bytes(front.stack.process.pid) // MEGABYTE)
    grown = held[1] - held[0]
    stands = served and grown <= LEFT_MB
    return [Finding("clients that leave", front.name, LEAVERS, LEAVERS * stands, f"{grown} MB more are held")]


@contextlib.contextmanager
def crowd(front: Front, count: int, sent: bytes = b"") -> Iterator[int]:
    """So many open connections on which ``sent`` was sent, and how many there are; closed behind the block."""
    with contextlib.ExitStack() as held:
        connected = 0
        for _ in range(count):
            try:
                link = held.enter_context(front.connect())
                link.sendall(sent)
                connected += 1
            except OSError:
                continue  # refused, or shed already: that is a way to hold
        yield connected


def _asked(blow: str, front: Front, note: str) -> Finding:
    """Ask for readiness and for work beside the crowd, and once more when it is gone."""
    pings = (
        sum(front.answers(PATIENCE_SECONDS) for _ in range(ASKED)) if front.answers(PATIENCE_SECONDS) else 0
    )
    posts = sum(front.serves(PATIENCE_SECONDS) for _ in range(ASKED)) if front.serves(PATIENCE_SECONDS) else 0
    note += f"{pings} of {ASKED} pings and {posts} of {ASKED} requests were answered"
    return Finding(blow, front.name, 2 * ASKED, pings + posts, note)


def descriptors(folder: Path, kind: str) -> list[Finding]:
    """1,100 idle connections: under a soft limit of 1,024, which may be raised, and under a hard one."""
    limits = {"soft": f"{DESCRIPTORS}:", "hard": f"{DESCRIPTORS}:{DESCRIPTORS}"}
    return [
        finding
        for name, limit in limits.items()
        for finding in _idle(folder / f"{kind}-{name}", kind, name, limit)
    ]


def _idle(folder: Path, kind: str, name: str, limit: str) -> Iterator[Finding]:
    with stack_of(kind, folder, launcher=["prlimit", f"--nofile={limit}"]) as stack:
        front = front_of(kind, stack)
        blow = f"{IDLE} idle connections, {name} limit of {DESCRIPTORS} descriptors"
        with crowd(front, IDLE) as held:
            yield _asked(blow, front, f"{held} connected; ")
        yield _asked("the same, gone", front, "")
