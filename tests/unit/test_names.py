"""Names that are shown to people: no name makes a line of its own, or moves a terminal's cursor."""

from tfs_proxy.names import one_entry, printable


def test_a_name_stays_on_its_line() -> None:
    """Line ends, escape sequences, marks that turn the direction and halves of pairs are shown as escapes."""
    assert printable("m\n\r\x1b[2K\u202e\udce9 é") == r"m\n\r\x1b[2K\u202e\udce9 é"


def test_further_lines_of_an_entry_are_indented() -> None:
    """The log's own prefix stands at the beginning of its entries alone."""
    assert (
        one_entry("can't be installed:\ntfs-proxy: ready\r") == "can't be installed:\n  tfs-proxy: ready\\r"
    )
