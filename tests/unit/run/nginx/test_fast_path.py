"""Which bodies nginx sends to the model server by itself."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nginx_config import nginx_config
from tfs_proxy.run.nginx.config import most_large_bodies
from tfs_proxy.run.nginx.fast_path import MAX_BODY_MB, MAX_BRACES, SMALL, only_object

PCRE_STEPS = 10_000_000
STEPS_A_CHARACTER = 2
ONLY_OBJECT = re.compile(re.sub(r'\\([\\"])', r"\1", only_object()).replace(r"\z", r"\Z").encode("latin-1"))


def is_one_object(body: bytes) -> bool:
    """The rule in plain code: balanced braces outside strings, white space around, ASCII."""
    depth, in_string, escaped, closed = 0, False, False, False
    for character in body.strip(b" \t\r\n").decode("latin-1"):
        if closed or character > "\x7f" or not (depth or character == "{"):
            return False
        if in_string:
            in_string = escaped or character != '"'
            if escaped and character == "\n":
                return False
            escaped = character == "\\" and not escaped
            continue
        in_string = character == '"'
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth > MAX_BRACES:
            return False
        closed = depth == 0
    return closed


@given(st.text('{}"\\a,[] \n\xe9', max_size=24).map(lambda text: text.encode("latin-1")))
def test_one_object_goes_to_the_model_server(body: bytes) -> None:
    """Everything but one object with balanced braces is Python's business."""
    assert bool(ONLY_OBJECT.match(body)) is is_one_object(body)


@pytest.mark.parametrize("depth", [1, MAX_BRACES, MAX_BRACES + 1])
def test_deep_objects_go_to_python(depth: int) -> None:
    """The pattern knows a fixed number of levels: recursion would cost nginx memory."""
    assert bool(ONLY_OBJECT.match(b"{" * depth + b"}" * depth)) is (depth <= MAX_BRACES)


def test_no_body_that_nginx_looks_at_can_make_pcre_give_up() -> None:
    """The steps that a character can take, times the characters there can be, stay below PCRE's limit."""
    assert (MAX_BODY_MB << 20) * STEPS_A_CHARACTER < PCRE_STEPS


@given(st.integers(0, 10_000_000))
def test_only_small_bodies_are_looked_at(length: int) -> None:
    """nginx holds those whole in memory; a larger one would cross to the model server for nothing."""
    assert bool(re.fullmatch(SMALL, str(length))) is (length < MAX_BODY_MB * 1_000_000)


MEGABYTE = 1024 * 1024
LARGE = nginx_config().partition("$large_body {")[2].partition("}\n    limit")[0]
PATTERNS = re.findall(r'"~(.+)" 1;', LARGE)


@pytest.mark.parametrize(
    ("length_and_coding", "large"),
    [
        (" ", False),
        ("0 ", False),
        (f"{MAX_BODY_MB * MEGABYTE} ", False),
        (f"{MAX_BODY_MB * MEGABYTE * 5 // 4} ", True),
        ("9999999 ", True),
        ("10000000 ", True),
        ("000010000000 ", True),
        ("000000000001 ", False),
        (" chunked", True),
    ],
)
def test_bodies_that_nginx_does_not_keep_in_memory_are_large(length_and_coding: str, large: bool) -> None:
    assert any(re.search(pattern, length_and_coding) for pattern in PATTERNS) is large


@pytest.mark.parametrize(
    ("free_mb", "body_mb", "number"),
    [(400, 95, 3), (400, 100, 3), (50, 100, 1), (0, 100, 1), (10**9, 1, 65_535)],
)
def test_there_are_as_many_as_the_disk_has_room_for(free_mb: int, body_mb: int, number: int) -> None:
    """One at least, or no large body could ever be sent."""
    assert most_large_bodies(free_mb * MEGABYTE, body_mb * MEGABYTE) == number
