"""Sends every raw case to every front: the answer is a right one, and the server answers others afterwards."""

import contextlib
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from attack.findings import Finding
from attack.fronts import Front
from attack.raw_http import bodies, heads
from attack.raw_http.case import CUT, SILENT, Case

CASES: tuple[Case, ...] = (
    *heads.request_lines(),
    *heads.paths(),
    *heads.headers(),
    *bodies.lengths(),
    *bodies.chunks(),
    *bodies.contents(),
    *bodies.connections(),
)
SILENCE_SECONDS = 60.0
MORE_SECONDS = 3.0
"""How long to listen for another answer behind one on a connection that stays open."""

AT_ONCE = 4
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")


def attack(fronts: Iterable[Front], cases: Iterable[Case] = CASES) -> list[Finding]:
    wanted = tuple(cases)
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda front: against(front, wanted), fronts))


def against(front: Front, cases: tuple[Case, ...]) -> Finding:
    """Every case against one front; some wait for an answer that does not come, so several at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = list(pool.map(lambda case: judge(front, case, send(front, case)), cases))
    wrong = [f"{case.name}: {fault}" for case, fault in zip(cases, faults, strict=True) if fault]
    return Finding("raw HTTP", front.name, len(cases), len(cases) - len(wrong), "; ".join(wrong))


def judge(front: Front, case: Case, statuses: list[int]) -> str:
    """What is wrong with these answers, "" if nothing is; the server has to answer the next client."""
    right = case.on.get(front.name, case.right)
    if not front.answers():
        return f"{statuses}, and then no answer to the next client"
    first = statuses[0] if statuses else CUT
    if first not in right:
        return "silence" if first == SILENT else str(first)
    return f"{len(statuses)} answers {statuses[:5]}" if len(statuses) > case.most else ""


def send(front: Front, case: Case) -> list[int]:
    """The statuses of all answers that came until the connection was closed."""
    sent = case.sent.replace(b"{get}", front.get.encode()).replace(b"{post}", front.post.encode())
    received = b""
    with contextlib.closing(front.connect()) as link:
        link.settimeout(SILENCE_SECONDS)
        with contextlib.suppress(OSError):  # a server may refuse before it has read all
            link.sendall(sent)
            if case.ends:
                link.shutdown(socket.SHUT_WR)
        try:
            while part := link.recv(65536):
                received += part
                link.settimeout(MORE_SECONDS if _statuses(received) else SILENCE_SECONDS)
        except TimeoutError:
            return _statuses(received) or [SILENT]
        except OSError:
            pass  # a reset is a close: what had come before counts
    return _statuses(received)


def _statuses(received: bytes) -> list[int]:
    return [status for text in _STATUS.findall(received) if (status := int(text)) >= 200]
