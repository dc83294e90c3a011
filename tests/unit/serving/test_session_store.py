"""The store of sessions, against a dict: what is set, limits, ends, ids, and models that know only their own."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfs_proxy.serving.script.session import Session
from tfs_proxy.serving.session_store import SessionStore
from tfs_proxy.values.deployment import SessionOptions
from tfs_proxy.values.errors import SessionFailure

LIMIT = 20_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
STEPS = st.lists(st.tuples(KEYS, JSON | st.binary(max_size=50) | st.just(KeyError)), max_size=12)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> SessionOptions:
    """Sessions of 100 s in a file."""
    return SessionOptions(str(tmp_path_factory.mktemp("store") / "sessions.db"), 100, LIMIT, 1_000_000)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_session_is_a_dict(options: SessionOptions, steps: list[tuple[str, Any]]) -> None:
    """Another worker reads all that was set and not deleted, as it was."""
    one, other = SessionStore(options), SessionStore(options)
    session, known = Session(one, one.open_session()), dict[str, Any]()
    for key, value in steps:
        if value is KeyError:
            assert session.pop(key, None) == known.pop(key, None)
        else:
            session[key] = known[key] = value

    assert dict(Session(other, other.find(session.id))) == known
    assert len(session) == len(known)
    one.close_session(session.id)
    one.close()
    other.close()


@pytest.mark.parametrize("value", [{1}, {"a": {2: 3}}, [b"bytes in a list"], object(), float])
def test_a_value_that_can_not_be_kept_names_its_key(options: SessionOptions, value: Any) -> None:
    """JSON would lose what such values are; nothing is stored."""
    store = SessionStore(options)
    session = Session(store, store.open_session())

    with pytest.raises(TypeError, match="window"):
        session["window"] = value
    with pytest.raises(TypeError, match="a key must be a str"):
        session[1] = "one"  # type: ignore[index]
    assert list(session) == []


def test_the_limit_of_a_session_is_that_of_all_its_keys(options: SessionOptions) -> None:
    """A value may take the place of one as large; what is refused changes nothing."""
    store = SessionStore(options)
    session = Session(store, store.open_session())
    session["a"] = b"x" * (LIMIT - 10)
    with pytest.raises(SessionFailure, match="KB of one session"):
        session["b"] = b"x" * 10
    session["a"] = b"y" * (LIMIT - 10)
    assert {key: value[:1] for key, value in session.items()} == {"a": b"y"}


def test_a_file_that_is_no_store_is_a_failure(tmp_path: Path) -> None:
    """The error says that the store can't be used, as a 424."""
    (tmp_path / "s").write_bytes(b"no database" * 100)
    with pytest.raises(SessionFailure, match="can't be used"):
        SessionStore(SessionOptions(str(tmp_path / "s"), 100, 10, 1_000_000)).open_session()
