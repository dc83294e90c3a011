"""Which names models can have, and how names are shown: none makes a line of its own."""

import pytest

from tfs_proxy.names import is_loaded_model_name, is_model_name, one_entry, printable


def test_a_name_stays_on_its_line() -> None:
    """Line ends, escape sequences, marks that turn the direction and halves of pairs are shown as escapes."""
    assert printable("m\n\r\x1b[2K\u202e\udce9 é") == r"m\n\r\x1b[2K\u202e\udce9 é"


def test_further_lines_of_an_entry_are_indented() -> None:
    """The log's own prefix stands at the beginning of its entries alone."""
    assert (
        one_entry("can't be installed:\ntfs-proxy: ready\r") == "can't be installed:\n  tfs-proxy: ready\\r"
    )


@pytest.mark.parametrize("name", ["a", "0af3", "team--a.v2_x", "a" * 64])
def test_names_of_models_that_are_loaded_at_run_time(name: str) -> None:
    """They are names of models, too."""
    assert is_loaded_model_name(name)
    assert is_model_name(name)


@pytest.mark.parametrize("name", ["", "a" * 65, ".a", "-a", "a/b", "a b", "a\n", "\u00e9", ".."])
def test_names_that_no_loaded_model_can_have(name: str) -> None:
    """Short enough for the path of a socket, and no path themselves."""
    assert not is_loaded_model_name(name)
