"""Which requests are repeated, how often, and after which pauses."""

import random
from collections.abc import Callable

from tfs_proxy.errors import ServerLost
from tfs_proxy.wire.backoff import growing_pause

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 10.0
_SERVER_ERROR = 500


class Refused(Exception):
    """A request failed; ``status`` is None if it got no answer at all, ``timed_out`` if not in time."""

    def __init__(self, status: int | None, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.status = status
        self.message = message

    @property
    def is_final(self) -> bool:
        """Whether the client is to blame (4xx), so that repeating the request would not help."""
        return self.status is not None and self.status < _SERVER_ERROR


def with_retries(
    attempt: Callable[[], bytes | Refused | ServerLost],
    max_retries: int,
    sleep: Callable[[float], object],
    count_retry: Callable[[], None],
    *,
    in_parts: bool = False,
) -> bytes:
    """Call ``attempt`` until it returns an answer, and return that.

    Repeats it after growing pauses if the connection fails, time runs out or the status is 5xx, as
    SageMaker does (docs/reference/sagemaker.md), except that what took too long is not repeated if it can
    be sent ``in_parts``. Raises the last error after ``max_retries`` repetitions.
    """
    retries = 0
    while True:
        result = attempt()
        if isinstance(result, bytes):
            return result
        refused = isinstance(result, Refused) and (result.is_final or (in_parts and result.timed_out))
        if retries >= max_retries or refused:
            raise result
        retries += 1
        count_retry()
        sleep(pause_seconds(retries))


def pause_seconds(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """The pause after attempt ``attempt`` (from 1): it doubles, and its second half is random.

    Without chance, requests that failed together would be repeated together.
    """
    return growing_pause(attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS) * (0.5 + chance() / 2)
