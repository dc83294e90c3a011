"""Connects this process to a Ray cluster."""

import contextlib
import logging
import signal
import socket
from collections.abc import Iterator

import ray

from tfs_proxy.errors import SettingsError

CONNECT_SECONDS = 10.0


@contextlib.contextmanager
def ray_connection(address: str | None) -> Iterator[None]:
    """Use the cluster at ``address``, else one that Ray finds, else a new one on this machine.

    Raises SettingsError if it can't be used.
    """
    if address is not None:
        _check_reachable(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SettingsError(f"The Ray cluster {address or ''} can't be used: {error}") from error
    # ray.init replaces the handler with one that would leave serving stacks running.
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise SettingsError if nothing listens at ``address``.

    ray.init itself would try again for a quarter of an hour and more.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdecimal():  # "auto" and "local" are words of Ray's own
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise SettingsError(
            f"The Ray cluster {address} can't be reached: {error.strerror or error}."
        ) from error
