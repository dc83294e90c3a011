"""A clock that a test moves."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Shows ``now``, in seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
