"""Which requests are repeated, how often, and after which pauses."""

from collections.abc import Sequence

import pytest

from tfs_proxy.errors import ServerLost
from tfs_proxy.transform.sender import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Refused,
    pause_seconds,
    with_retries,
)

BUSY = Refused(503, "busy")
BAD = Refused(400, "bad")
SILENT = Refused(None, "no answer within 5 seconds")


class Attempts:
    """Gives ``results`` one after the other, and remembers pauses and retries."""

    def __init__(self, results: Sequence[bytes | Refused | ServerLost]) -> None:
        self._results = iter(results)
        self.pauses: list[float] = []
        self.retries = 0

    def run(self, max_retries: int) -> bytes:
        return with_retries(lambda: next(self._results), max_retries, self.pauses.append, self._count)

    def _count(self) -> None:
        self.retries += 1


@pytest.mark.parametrize("error", [BUSY, SILENT, Refused(500, "a bug"), ServerLost("gone")])
def test_what_may_pass_is_repeated(error: Refused | ServerLost) -> None:
    """5xx, no answer and no connection: the answer of a later attempt counts."""
    attempts = Attempts([error, error, b"answer"])
    assert attempts.run(max_retries=3) == b"answer"
    assert (attempts.retries, len(attempts.pauses)) == (2, 2)


def test_a_mistake_of_the_client_is_not_repeated() -> None:
    """4xx is raised at once, even after an error that was repeated."""
    attempts = Attempts([BUSY, BAD, b"never asked for"])
    with pytest.raises(Refused) as caught:
        attempts.run(max_retries=3)
    assert (caught.value, attempts.retries) == (BAD, 1)


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_the_last_error_is_raised(max_retries: int) -> None:
    """After as many repetitions as InvocationsMaxRetries allows."""
    attempts = Attempts([*[BUSY] * max_retries, SILENT, b"never asked for"])
    with pytest.raises(Refused) as caught:
        attempts.run(max_retries)
    assert (caught.value, attempts.retries) == (SILENT, max_retries)


def test_pauses_double_up_to_a_limit() -> None:
    """Half of each is random, so that requests that failed together come back at different times."""
    longest = [pause_seconds(attempt, lambda: 1.0) for attempt in range(1, 9)]
    assert longest[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert longest[-1] == LONGEST_PAUSE_SECONDS
    assert pause_seconds(1, lambda: 0.0) == FIRST_PAUSE_SECONDS / 2
