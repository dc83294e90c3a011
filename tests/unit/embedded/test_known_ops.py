"""The ops that `check` knows are those of the installed TensorFlow and TensorFlow Text: `make known-ops`."""

import pytest

from support.loading import load_script


def test_the_list_is_that_of_the_installed_packages() -> None:
    """A newer TensorFlow has more."""
    pytest.importorskip("tensorflow_text", reason="`make test` alone installs without it")
    known_ops = load_script("known_ops")
    assert known_ops.FILE.read_text().split() == known_ops.registered()
