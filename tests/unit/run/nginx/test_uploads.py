"""Which bodies nginx counts as large, and how many of them it takes at once."""

import re

import pytest

from support.nginx_config import nginx_config
from tfs_proxy.run.nginx.config import most_large_bodies
from tfs_proxy.run.nginx.fast_path import MAX_BODY_MB

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
