"""Checks where an archive's symbolic links lead, by names alone; the last check of `extract`."""

from collections import deque
from collections.abc import Mapping

MAX_LINKS_FOLLOWED = 40
MAX_STEPS = 5_000_000


class LinkRefused(Exception):
    """The link ``name`` can't be created; the text completes 'is a symbolic link that …'."""

    def __init__(self, name: bytes, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def check_links(links: Mapping[bytes, bytes]) -> None:
    """Raise LinkRefused for the first of ``links`` that leaves the folder or is part of a loop.

    Keys are normalised names below the folder, values the targets as the archive has them. Targets are
    resolved as the kernel does it, through other links too.
    """
    steps_left = MAX_STEPS
    for name in links:
        steps_left -= _follow(name, links, steps_left)


def _follow(name: bytes, links: Mapping[bytes, bytes], most_steps: int) -> int:
    at: list[bytes] = name.split(b"/")[:-1]
    ahead = deque(_parts(name, links[name]))
    followed = steps = 0
    while ahead:
        steps += 1
        if steps > most_steps:
            raise LinkRefused(name, "is one of too many links to follow")
        part = ahead.popleft()
        if part == b"..":
            if not at:
                raise LinkRefused(name, "leads out of the folder that the archive is unpacked in")
            at.pop()
            continue
        at.append(part)
        target = links.get(b"/".join(at))
        if target is not None:
            followed += 1
            if followed > MAX_LINKS_FOLLOWED:
                raise LinkRefused(name, "leads back to itself")
            at.pop()
            ahead.extendleft(reversed(_parts(name, target)))
    return steps


def _parts(name: bytes, target: bytes) -> list[bytes]:
    if target.startswith(b"/"):
        raise LinkRefused(name, "leads to an absolute path")
    return [part for part in target.split(b"/") if part not in {b"", b"."}]
