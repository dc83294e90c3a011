"""Ports that the supervisor keeps for its children: nobody else gets them, and the children do."""

import socket
import sys
from contextlib import ExitStack

import pytest

from tfs_proxy.supervisor.host.sockets import LOOPBACK, free_blocks, free_ports, listen

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux lets a child bind a port that is held"
)
COUNT = 50


def test_no_other_process_is_given_a_port_that_is_held() -> None:
    """Neither one that asks for any port, nor one that looks whether this one is free; afterwards it is free again."""
    with ExitStack() as held:
        (port,) = free_ports(1, held)
        others = free_ports(COUNT, held)
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind((LOOPBACK, port))
    assert len({port, *others}) == COUNT + 1

    with socket.socket() as other:
        other.bind((LOOPBACK, port))


def test_a_child_listens_on_a_port_that_is_held_and_again_after_its_death() -> None:
    """As every model server, it sets SO_REUSEADDR; until then clients are refused."""
    with ExitStack() as held:
        (port,) = free_ports(1, held)
        (block,) = free_blocks([4], held)
        for held_port in (port, *block):
            with socket.socket() as client, pytest.raises(ConnectionRefusedError):
                client.connect((LOOPBACK, held_port))
            for _ in range(2):
                with listen(LOOPBACK, held_port), socket.create_connection((LOOPBACK, held_port)):
                    pass
