"""Copies for a shadow variant: how many, and what the report says of their answers."""

import asyncio

import pytest

from tfs_proxy.tools.endpoint import shadows as copies
from tfs_proxy.tools.endpoint.shadows import (
    MOST_EXAMPLES,
    AskShadow,
    ShadowCopies,
    ShadowReport,
    VariantAnswer,
    share_of,
)


def answer(status: int = 200, body: bytes = b'{"y": 1.0}') -> VariantAnswer:
    return VariantAnswer(status, "application/json", body, 0.01)


def asks(given: VariantAnswer) -> AskShadow:
    async def ask() -> VariantAnswer:
        return given

    return ask


async def fail() -> VariantAnswer:
    raise ConnectionError("it is down")


def report_of(*shadows: AskShadow, share: float = 1.0, draw: float = 0.0) -> ShadowReport:
    """The report after a copy for each of these; production always answers the same."""

    async def scenario() -> ShadowReport:
        shadow = ShadowCopies(ShadowReport("live", "next"), share, lambda: draw)
        for number, ask in enumerate(shadows):
            shadow.copy(str(number), answer(), ask)
        await shadow.close(60)
        return shadow.report

    return asyncio.run(scenario())


def test_answers_are_compared() -> None:
    """Each copy is alike, has another status or another body; what is down has the status 0."""
    report = report_of(
        asks(answer(body=b'{"y": 1}')), asks(answer(500)), asks(answer(body=b'{"y": 2}')), fail
    ).document()
    assert (report["copied"], report["equal"], report["body_differences"]) == (4, 1, 1)
    assert report["status_differences"] == [
        {"production": 200, "shadow": 0, "requests": 1},
        {"production": 200, "shadow": 500, "requests": 1},
    ]
    assert {"inferenceId": "2", "difference": "$.y is 1.0 and 2"} in report["examples"]
    assert set(report["latency_ms"]) == {"production", "shadow"}


def test_only_the_share_is_copied() -> None:
    assert report_of(asks(answer()), share=0.5, draw=0.5).copied == 0
    assert report_of(asks(answer()), share=0.5, draw=0.49).copied == 1
    assert share_of(0.5, 1.0) == 0.5
    assert share_of(3.0, 1.0) == 1.0
    assert share_of(1.0, 0.0) == 1.0


def test_a_slow_shadow_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MOST_COPIES", 1)
    report = report_of(asks(answer()), asks(answer()))
    assert (report.copied, report.dropped) == (1, 1)


def test_examples_are_few() -> None:
    report = report_of(*[asks(answer(500))] * (MOST_EXAMPLES + 5))
    assert len(report.document()["examples"]) == MOST_EXAMPLES
    assert "15 with another status" in report.line()
