"""Which names models can have, and how names are shown: none makes a line of its own."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.values.attributes import parse_target
from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.names import LOADED_MODEL, METHODS, is_model_name, one_entry, printable
from tfs_proxy.values.signature import Target


def test_a_name_stays_on_its_line() -> None:
    """Line ends, escape sequences, marks that turn the direction and halves of pairs are shown as escapes."""
    assert printable("m\n\r\x1b[2K\u202e\udce9 é") == r"m\n\r\x1b[2K\u202e\udce9 é"


def test_further_lines_of_an_entry_are_indented() -> None:
    """The log's own prefix stands at the beginning of its entries alone."""
    assert (
        one_entry("can't be installed:\ntfs-proxy: ready\r") == "can't be installed:\n  tfs-proxy: ready\\r"
    )


NAMES = ["a", "0af3", "team--a.v2_x", "a" * 64]


@pytest.mark.parametrize("name", [*NAMES, "", "a" * 65, ".a", "-a", "a/b", "a b", "a\n", "\u00e9", ".."])
def test_names_of_models_that_are_loaded_at_run_time(name: str) -> None:
    """They are names of models, too: short enough for the path of a socket, and no path themselves."""
    assert is_model_name(name, LOADED_MODEL) is (name in NAMES)
    assert is_model_name(name) or name not in NAMES


@pytest.mark.parametrize(
    ("header", "target"),
    [
        (None, Target("default")),
        ("trace=abc,user=7", Target("default")),
        ("tfs-unknown=1, tfs-model-name", None),
        (" tfs-model-name = other , trace=a=b", Target("other")),
        ("tfs-model-version=9223372036854775807", Target("default", version=2**63 - 1)),
        ("tfs-model-label=canary_2", Target("default", label="canary_2")),
        ("tfs-signature-name=a=b", Target("default", signature="a=b")),
        (
            "x=1,tfs-model-name=m,tfs-model-version=2,tfs-method=regress,tfs-signature-name=s",
            Target("m", version=2, method="regress", signature="s"),
        ),
        ("my-tfs-model-name=other", Target("default")),
    ],
)
def test_targets(header: str | None, target: Target | None) -> None:
    """Our attributes are read among any others; a value may contain an equals sign."""
    if target is None:
        with pytest.raises(BadInput, match="tfs-model-name"):
            parse_target(header, "default")
    else:
        assert parse_target(header, "default") == target


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("tfs-model-name=../../etc", "tfs-model-name"),
        ("tfs-model-name=", "tfs-model-name"),
        ("tfs-model-name=" + "a" * 256, "tfs-model-name"),
        ("tfs-model-version=-1", "tfs-model-version"),
        ("tfs-model-version=٣", "tfs-model-version"),
        ("tfs-model-version=9223372036854775808", "tfs-model-version"),
        ("tfs-model-label=a-b", "tfs-model-label"),
        ("tfs-signature-name=a b", "tfs-signature-name"),
        ("tfs-method=Predict", "tfs-method"),
        ("tfs-method=predict,tfs-method=predict", "tfs-method"),
        ("tfs-model-version=1,tfs-model-label=a", "exclude each other"),
    ],
)
def test_malformed(header: str, name: str) -> None:
    """A malformed attribute is the client's mistake, and named."""
    with pytest.raises(BadInput, match=name):
        parse_target(header, "default")


@given(st.text(max_size=60) | st.from_regex(r"tfs-(model-(name|version|label)|method|signature-name)=.{0,9}"))
def test_any_header(header: str) -> None:
    """Whatever the header holds: a target that fits a URI, or BadInput."""
    with contextlib.suppress(BadInput):
        target = parse_target(header, "default")
        assert target.method in METHODS
        assert "/" not in target.model
        assert target.version is None or 0 <= target.version < 2**63
