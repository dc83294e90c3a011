"""Which models leave: the least recently used that make enough room, and those nobody asks for."""

from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.run.many_models.uses import ModelUse, idle, least_recently_used

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
