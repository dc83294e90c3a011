"""Uses of models: by counts of requests that grow, and which models leave for others."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.run.many_models.uses import LOOK_SECONDS, LastUses, ModelUse, idle, least_recently_used


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


MODELS = (
    ModelUse("young", 100, used_at=30.0),
    ModelUse("busy", 1000, used_at=1.0, in_use=True),
    ModelUse("old", 50, used_at=10.0),
    ModelUse("middle", 70, used_at=20.0),
)


def test_models_without_requests_leave_after_their_time() -> None:
    assert idle(MODELS, now=40.0, idle_seconds=20.0) == ("old", "middle")
    assert idle(MODELS, now=40.0, idle_seconds=31.0) == ()
    assert idle(MODELS, now=1e9, idle_seconds=0) == ()


USES = st.lists(
    st.builds(
        ModelUse,
        st.text("abcdef", min_size=1, max_size=4),
        st.integers(0, 50),
        st.floats(0, 9),
        st.booleans(),
    ),
    unique_by=lambda model: model.name,
)


@given(USES, st.integers(0, 200))
def test_those_that_leave_make_room_and_the_last_of_them_is_needed(
    models: list[ModelUse], missing_bytes: int
) -> None:
    leaving = least_recently_used(models, missing_bytes)
    given_back = [model.memory_bytes for name in leaving for model in models if model.name == name]
    may_leave = [model for model in models if not model.in_use]

    if not leaving:
        assert not may_leave or sum(model.memory_bytes for model in may_leave) < missing_bytes
        return
    assert sum(given_back) >= missing_bytes
    assert len(leaving) == 1 or sum(given_back[:-1]) < missing_bytes
    latest = max(model.used_at for model in may_leave if model.name in leaving)
    assert all(model.used_at >= latest for model in may_leave if model.name not in leaving)


def test_models_that_are_gone_are_told_once() -> None:
    scene = Scene()
    scene.load("a", "b")

    assert scene.uses.forget_all_but({"b"}) == ["a"]
    assert scene.uses.forget_all_but({"b"}) == []
    assert scene.uses.used_at("a") == 0.0
