"""Ports that the supervisor keeps for its children: nobody else gets them, and the children do."""

import socket
import sys
from contextlib import ExitStack

import pytest

from tfs_proxy.errors import SettingsError
from tfs_proxy.setting_values import ExtraPorts
from tfs_proxy.supervisor.host.sockets import (
    LOOPBACK,
    free_blocks,
    free_ports,
    listen,
    listen_on_extra_ports,
)

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


def test_an_extra_port_that_is_taken_is_an_error_only_if_it_was_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By `auto` the HTTP port alone answers, and the log says why; it is never opened twice itself."""
    with listen(LOOPBACK, 0) as main, listen(LOOPBACK, 0) as other:
        main_port, taken = (int(listener.getsockname()[1]) for listener in (main, other))
        assert listen_on_extra_ports(main, ExtraPorts((main_port,), required=True)) == []
        assert listen_on_extra_ports(main, ExtraPorts((taken,), required=False)) == []
        assert f"can't listen on {LOOPBACK}:{taken}" in caplog.text
        with pytest.raises(SettingsError, match=f"{taken}.*TFS_PROXY_EXTRA_PORTS"):
            listen_on_extra_ports(main, ExtraPorts((taken,), required=True))
