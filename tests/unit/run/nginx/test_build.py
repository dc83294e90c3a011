"""What an nginx says of itself decides what its configuration may name."""

from pathlib import Path

import pytest

from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.proxy import read_version
from tfs_proxy.values.layout import Workspace

WORKSPACE = Workspace(Path("/run/tfs"))


@pytest.mark.parametrize(
    ("says", "version"),
    [("nginx version: nginx/1.26.3", (1, 26, 3)), ("nginx version: nginx/1.18.0\n", (1, 18, 0)), ("?", (0,))],
)
def test_the_version_is_read_from_the_programs_own_words(
    says: str, version: tuple[int, ...], tmp_path: Path
) -> None:
    """It decides how HTTP/2 is written."""
    program = tmp_path / "nginx"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{says}' >&2\n")
    program.chmod(0o755)

    assert read_version(str(program)) == version


@pytest.mark.parametrize(
    ("cores", "descriptors", "most"),
    [(1, 100_000, 4096), (2, 100_000, 4096), (4, 100_000, 8192), (64, 100_000, 8192), (64, 1024, 768)],
)
def test_connections_follow_cores_and_leave_descriptors(cores: int, descriptors: int, most: int) -> None:
    """A small machine need not pay for as many as a large one may have; a quarter of descriptors is for files."""
    assert config.most_connections(cores, descriptors) == most
