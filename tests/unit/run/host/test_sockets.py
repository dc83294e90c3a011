"""Ports that the supervisor keeps for its children: nobody else gets them, and the children do."""

import socket
import sys
from contextlib import ExitStack

import pytest

from support.ports import free_range
from tfs_proxy.run.host.sockets import (
    LOOPBACK,
    free_ports,
    listen,
    listen_on_extra_ports,
    web_listener,
)
from tfs_proxy.settings.parsers import PortRange, Ports
from tfs_proxy.values.errors import SettingsError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux lets a child bind a port that is held"
)
COUNT = 50


def test_no_other_process_is_given_a_port_that_is_held() -> None:
    with ExitStack() as held:
        (port,) = free_ports(1, held)
        others = free_ports(COUNT, held)
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind((LOOPBACK, port))
    assert len({port, *others}) == COUNT + 1

    with socket.socket() as other:
        other.bind((LOOPBACK, port))


def test_a_child_listens_on_a_port_that_is_held_and_again_after_its_death() -> None:
    with ExitStack() as held:
        (port,) = free_ports(1, held)
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((LOOPBACK, port))
        for _ in range(2):
            with listen(LOOPBACK, port), socket.create_connection((LOOPBACK, port)):
                pass


def test_an_extra_port_that_is_taken_is_an_error_only_if_it_was_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with listen(LOOPBACK, 0) as main, listen(LOOPBACK, 0) as other:
        main_port, taken = (int(listener.getsockname()[1]) for listener in (main, other))
        assert listen_on_extra_ports([main], Ports((main_port,), required=True)) == []
        assert listen_on_extra_ports([main], Ports((taken,), required=False)) == []
        assert f"can't listen on {LOOPBACK}:{taken}" in caplog.text
        with pytest.raises(SettingsError, match=f"{taken}.*TFS_PROXY_EXTRA_PORTS"):
            listen_on_extra_ports([main], Ports((taken,), required=True))


def test_the_workers_sockets_are_in_the_safe_range() -> None:
    """One without room leaves them free ports: those of the model servers are never taken."""
    low = free_range(6)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", low + 5))
        taken.listen()
        listeners = [web_listener(PortRange(low, low + 5), 1) for _ in range(2)]

    assert [listener.getsockname()[1] for listener in listeners] == [low + 4, low + 3]
    for listener in listeners:
        listener.close()
    with web_listener(PortRange(low, low + 1), 1) as free:
        assert free.getsockname()[1] not in {low, low + 1}
