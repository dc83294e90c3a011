"""When a change is whole."""

from pathlib import Path

from tfs_proxy.run.reloading.reloader import SettlingFiles

A, B = Path("a"), Path("b")


def test_a_change_is_whole_once_nothing_has_changed_for_so_long() -> None:
    """Each further change begins the time anew."""
    files = SettlingFiles({A: 1}, seconds=2)
    files.note({A: 1}, 10)
    assert files.is_whole(10)
    assert not files.is_pending

    files.note({A: 2}, 11)
    files.note({A: 2}, 12)
    assert files.is_pending
    assert not files.is_whole(12)
    files.note({A: 3}, 12.5)
    assert not files.is_whole(14)
    files.note({A: 3}, 14.5)

    assert files.is_whole(14.5)


def test_a_change_is_taken_once_whether_it_can_be_used_or_not() -> None:
    """The files that have changed are named, those that have gone included."""
    files = SettlingFiles({A: 1}, seconds=0)
    files.note({B: 1}, 1)

    assert files.take() == (A, B)
    files.note({B: 1}, 2)
    assert not files.is_pending


def test_a_change_that_is_undone_is_none() -> None:
    files = SettlingFiles({A: 1}, seconds=2)
    files.note({A: 2}, 1)
    files.note({A: 1}, 2)

    assert not files.is_pending
    assert files.is_whole(2)
