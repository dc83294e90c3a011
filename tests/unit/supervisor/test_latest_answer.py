"""Answers of somebody who may be slow, for a scrape that must not wait."""

import asyncio

from tfs_proxy.supervisor.scraping import LatestAnswer, refresh_all

A_MOMENT = 0.001


def test_whoever_is_late_is_shown_as_it_last_answered() -> None:
    """And is not asked again before it has answered."""

    async def scrapes() -> list[int | None]:
        values, late, asked = [], asyncio.Event(), 0

        async def ask() -> int:
            nonlocal asked
            asked += 1
            if asked == 2:
                await late.wait()
            return asked

        answer = LatestAnswer(ask)
        for _ in range(3):
            await refresh_all([answer], A_MOMENT)
            values.append(answer.value)
        late.set()
        await answer.refresh()
        return [*values, answer.value]

    assert asyncio.run(scrapes()) == [1, 1, 1, 2]


def test_a_scrape_waits_for_all_together() -> None:
    """Twenty that hang are asked at the same time, and given up together."""

    async def scrape() -> int:
        never = asyncio.Event()
        asked = given_up = most = 0

        async def ask() -> None:
            nonlocal asked, given_up, most
            asked += 1
            most = max(most, asked - given_up)
            try:
                await never.wait()
            finally:
                given_up += 1

        await refresh_all([LatestAnswer(ask) for _ in range(20)], 0.05)
        return most

    assert asyncio.run(scrape()) == 20


def test_the_age_is_that_of_the_answer() -> None:
    """Not that of the last scrape; a failure forgets what was known."""

    async def scrapes() -> None:
        answers = iter([7, None])
        now = 100.0

        async def ask() -> int | None:
            return next(answers)

        answer = LatestAnswer(ask, lambda: now)
        await answer.refresh()
        now = 130.0
        assert (answer.value, answer.age_seconds) == (7, 30.0)
        await answer.refresh()
        assert answer.value is None

    asyncio.run(scrapes())
