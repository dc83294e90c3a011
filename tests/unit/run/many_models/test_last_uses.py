"""When models were last asked, by counts of requests that grow."""

from collections import Counter

from tfs_proxy.run.many_models.uses import LOOK_SECONDS, LastUses


class Scene:
    """Models whose requests are counted here, on a clock that only `pass_time` moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.requests: Counter[str] = Counter()
        self.uses = LastUses(self.requests.__getitem__, lambda: self.now)

    def load(self, *names: str) -> None:
        """Note the loads of these models, now."""
        for name in names:
            self.uses.note_load(name)

    def pass_time(self, seconds: float) -> float:
        """Let time pass, and return what the clock shows then."""
        self.now += seconds
        return self.now


def test_a_load_counts_as_a_use_and_so_does_each_request() -> None:
    """Only the model that was asked is used; one without a request counts from its load."""
    scene = Scene()
    scene.load("a", "b")
    loaded_at = scene.now
    asked_at = scene.pass_time(LOOK_SECONDS)
    scene.requests["a"] += 1
    scene.uses.look("ab")
    scene.pass_time(LOOK_SECONDS)
    scene.uses.look("ab")

    assert scene.uses.used_at("a") == asked_at
    assert scene.uses.used_at("b") == loaded_at


def test_requests_are_looked_for_once_a_second() -> None:
    scene = Scene()
    scene.load("a")
    loaded_at = scene.now
    scene.requests["a"] += 1
    scene.pass_time(LOOK_SECONDS / 2)
    scene.uses.look("a")

    assert scene.uses.used_at("a") == loaded_at
    looked_at = scene.pass_time(LOOK_SECONDS / 2)
    scene.uses.look("a")
    assert scene.uses.used_at("a") == looked_at


def test_a_model_that_comes_back_counts_from_zero() -> None:
    scene = Scene()
    scene.load("a")
    scene.requests["a"] = 5
    scene.pass_time(LOOK_SECONDS)
    scene.uses.look("a")
    scene.uses.forget_all_but(())
    scene.requests["a"] = 0
    scene.load("a")
    loaded_at = scene.now
    scene.pass_time(LOOK_SECONDS)
    scene.uses.look("a")

    assert scene.uses.used_at("a") == loaded_at
