"""A request waits while a model server is restarted."""

from collections.abc import Iterator

import pytest

from support.fake_upstream import Call, FakeUpstream
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.serving.upstream.recovery import ATTEMPTS, PATIENCE_SECONDS, Recovering, sent_before
from tfs_proxy.values.deployment import TimeLimits
from tfs_proxy.values.errors import UpstreamRefused, UpstreamUnavailable
from tfs_proxy.values.signature import Signature, Target

TARGET = Target("m")
SIGNATURE = Signature("serving_default", "", {}, {})
GOOD, ABSENT = ModelAnswer(200, b"{}"), ModelAnswer(404, b'{"error": "Servable not found"}')


class Stage:
    """A clock that only sleeping moves, a supervisor that settles in time, and answers in turn."""

    def __init__(
        self, *answers: ModelAnswer | Exception, settled_after: float = 0.0, fake: FakeUpstream | None = None
    ) -> None:
        self.now = 0.0
        self._answers: Iterator[ModelAnswer | Exception] = iter(answers)
        self._settled_after = settled_after
        self.fake = fake or FakeUpstream(answer=self._next)
        self.upstream = Recovering(
            self.fake, self.settled, TimeLimits(60.0), clock=lambda: self.now, sleep=self.sleep
        )

    def _next(self, _call: Call) -> ModelAnswer:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def settled(self) -> bool:
        return self.now >= self._settled_after

    def ask(self) -> ModelAnswer:
        return self.upstream.predict(TARGET, b"{}")


def test_a_model_that_is_not_there_is_answered_at_once() -> None:
    """404 is the truth if nothing is being restarted."""
    stage = Stage(ABSENT)

    assert stage.ask() is ABSENT
    assert stage.now == 0.0


def test_a_request_that_nginx_has_sent_before_is_sent_once_more() -> None:
    stage = Stage(*[UpstreamUnavailable("gone")] * 9, settled_after=5.0)

    with sent_before(), pytest.raises(UpstreamUnavailable):
        stage.ask()
    assert len(stage.fake.calls) == ATTEMPTS - 1
    assert stage.now >= 5.0


def test_patience_ends() -> None:
    """A model server that does not come back is reported, not waited for."""
    stage = Stage(*[UpstreamUnavailable("gone")] * 9, settled_after=1e9)

    with pytest.raises(UpstreamUnavailable):
        stage.ask()
    assert PATIENCE_SECONDS <= stage.now < PATIENCE_SECONDS + 1


class RefusingFirst(FakeUpstream):
    """Has no signature when first asked: the model is being loaded again."""

    refusals = 0

    def signature(self, target: Target) -> Signature:
        self.refusals += 1
        if self.refusals == 1:
            raise UpstreamRefused(404, b"{}")
        return super().signature(target)


@pytest.mark.parametrize("settled_after", [0.0, 5.0])
def test_a_signature_is_waited_for_too(settled_after: float) -> None:
    stage = Stage(settled_after=settled_after, fake=RefusingFirst({"serving_default": SIGNATURE}))

    if settled_after:
        assert stage.upstream.signature(TARGET) is SIGNATURE
    else:
        with pytest.raises(UpstreamRefused):
            stage.upstream.signature(TARGET)
    assert stage.now == pytest.approx(settled_after, abs=0.2)
