"""Threads that all wait on one epoll: the kernel wakes one of them for each socket that can be read."""

import logging
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from socket import socket

log = logging.getLogger(__name__)

ONE_THREAD = select.EPOLLIN | select.EPOLLONESHOT
"""A socket is reported to one thread, which owns it until it calls `Poller.watch` for it again."""

SWITCH_SECONDS = sys.getswitchinterval()
CALM_THREADS = 32
"""From here on a thread that waits for the interpreter asks for it more rarely: asking wakes it up, and with
128 threads that was a fifth of the worker's CPU time."""


class Poller:
    """As many threads as were ever busy at once, up to ``most_threads()``, around one epoll.

    Each calls ``serve`` with the descriptor of a socket that can be read.
    """

    def __init__(self, serve: Callable[[int], None], most_threads: Callable[[], int]) -> None:
        self._serve = serve
        self._most_threads = most_threads
        self._epoll = select.epoll()
        self._end, self._ending = os.pipe()
        self._epoll.register(self._end, select.EPOLLIN)
        self._counts = threading.Lock()
        self._threads = self._waiting = 0

    def add(self, added: socket) -> None:
        """Take a socket in, which is not watched before `watch`."""
        self._epoll.register(added, 0)

    def remove(self, removed: socket) -> None:
        """Forget a socket that stays open."""
        self._epoll.unregister(removed)

    def watch(self, watched: socket) -> None:
        """Report this socket once, as soon as it can be read."""
        self._epoll.modify(watched, ONE_THREAD)

    def watch_if_open(self, watched: socket) -> None:
        """As `watch`; nothing happens if the socket has been removed or closed."""
        with suppress(OSError, ValueError):
            self.watch(watched)

    def stop(self) -> None:
        """End every thread when it waits next."""
        os.write(self._ending, b".")

    def add_thread(self) -> None:
        """Start a thread that waits with the others, unless one waits already or there are enough."""
        with self._counts:
            if self._waiting or self._threads >= self._most_threads():
                return
            self._threads += 1
            self._waiting += 1
            sys.setswitchinterval(SWITCH_SECONDS * max(1.0, self._threads / CALM_THREADS))
        thread = threading.Thread(target=self._take_turns, name=f"request-{self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("the system allows no more than %d threads: %s", self._threads - 1, error)
            with self._counts:
                self._threads -= 1
                self._waiting -= 1

    def _take_turns(self) -> None:
        """Wait for a socket, serve it, and so on until the end."""
        poll, end = self._epoll.poll, self._end
        while True:
            descriptor = poll(None, 1)[0][0]
            if descriptor == end:
                return
            with self._counts:
                self._waiting -= 1
                alone = not self._waiting
            if alone:
                self.add_thread()
            try:
                self._serve(descriptor)
            except BaseException:  # a thread that ends would never be replaced
                log.exception("a connection failed")
            with self._counts:
                self._waiting += 1


def is_readable(descriptor: int) -> bool:
    """Whether something waits to be read."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
