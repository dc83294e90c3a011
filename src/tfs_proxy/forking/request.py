"""The supervisor's request to the warm parent for a process: one connection each, bytes and descriptors.

The request comes first, then the process answers with its id, and the supervisor with `GO`: without that
word it ends, so that none runs which the supervisor has given up.
"""

import json
import struct
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, convert, to_builtins

NUMBER: Final = struct.Struct("!I")
"""How many bytes a request has, which the descriptors come with, and the id of a process."""

GO: Final = b"\x01"
ANSWER_SECONDS: Final = 10.0
"""Either side waits so long for the other; only a machine that stands still takes longer."""


class ForkRequest(Struct, frozen=True):
    """A process to be forked, with its command line and environment as for exec.

    ``descriptors`` are the numbers that the descriptors which come along are to have in the process, the
    first of which is its output. Linux sends it ``orphaned_signal`` when the supervisor has died.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    descriptors: tuple[int, ...]
    orphaned_signal: int

    def to_bytes(self) -> bytes:
        """As it is sent; surrogates in the environment stand for bytes that are not UTF-8."""
        return json.dumps(to_builtins(self)).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> "ForkRequest":
        """As it was sent; raises ValueError for anything else."""
        return convert(json.loads(text), cls)
