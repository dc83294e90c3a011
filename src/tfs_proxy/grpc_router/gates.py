"""Where models are: links to model servers, which the supervisor makes and removes, and the calls there.

A model's gates ``NAME.0``, ``NAME.1``, ... lead to its model servers' gRPC sockets while they are ready.
Beside them the file ``NAME.calls`` is locked by the router as long as it has calls to the model, so that an
unload waits for them; the kernel releases the lock if the router dies.
"""

import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tfs_proxy.layout import Workspace
from tfs_proxy.names import is_model_name


def gate(folder: Path, model: str, instance: int) -> Path:
    """The link to one of a model's model servers."""
    return folder / f"{model}.{instance}"


def calls_file(folder: Path, model: str) -> Path:
    """The file that is locked while there are calls to the model."""
    return folder / f"{model}.calls"


class CallLocks:
    """Files that are locked as long as there are calls; whoever wants to end a model server looks at them."""

    def __init__(self) -> None:
        self._calls: Counter[Path] = Counter()
        self._locked: dict[Path, int] = {}

    def begin(self, path: Path) -> bool:
        """Count a call; False if there is no such file."""
        if not self._calls[path]:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                del self._calls[path]
                return False
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._locked[path] = descriptor
        self._calls[path] += 1
        return True

    def end(self, path: Path) -> None:
        """A call that was counted is over."""
        self._calls[path] -= 1
        if not self._calls[path]:
            del self._calls[path]
            os.close(self._locked.pop(path))


class Gates:
    """The gates in ``folder``, as they are at the moment of each question."""

    def __init__(self, folder: Path, instances: int) -> None:
        self._folder = folder
        self._instances = instances
        self._locks = CallLocks()

    def sockets(self, model: str) -> tuple[str, ...]:
        """The sockets of the model servers that have the model; none if it is not ready."""
        # NOTE: the link itself can't be the address: gRPC would not see that it leads elsewhere now.
        links = (_link(f"{self._folder}/{model}.{instance}") for instance in range(self._instances))
        return tuple(link for link in links if link)

    def have_led_to(self, model: str) -> bool:
        """Whether the model has had gates since it was loaded."""
        return is_model_name(model) and calls_file(self._folder, model).exists()

    @contextmanager
    def call(self, model: str) -> Iterator[tuple[str, ...]]:
        """The same around a call, whose end an unload waits for."""
        calls = calls_file(self._folder, model) if is_model_name(model) else None
        if calls is None or not self._locks.begin(calls):
            yield ()
            return
        try:
            # After the lock: who removes the links looks for it afterwards.
            yield self.sockets(model)
        finally:
            self._locks.end(calls)


class SharedGates:
    """The gates of model servers that have all models of one archive: ``paths``, a link for each of them.

    Other model servers may take their place. Where they listen, there is a file for calls to them.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(map(str, paths))
        self._locks = CallLocks()

    def sockets(self, _: str) -> tuple[str, ...]:
        """The sockets of the model servers that are ready, whatever the model: they know which they have."""
        return tuple(link for path in self._paths if (link := _link(path)))

    def have_led_to(self, _: str) -> bool:
        """Whether there are model servers at all."""
        return bool(self._paths)

    @contextmanager
    def call(self, model: str) -> Iterator[tuple[str, ...]]:
        """The same around a call, whose end those wait for who end the model servers."""
        calls = self._begin(model)
        try:
            yield self.sockets(model)
        finally:
            if calls is not None:
                self._locks.end(calls)

    def _begin(self, model: str) -> Path | None:
        """Count a call where the gates lead to, also after it has been counted; None if no file is there."""
        while sockets := self.sockets(model):
            calls = Workspace(Path(sockets[0]).parent).grpc_calls
            if not self._locks.begin(calls):
                return None
            if self.sockets(model)[:1] == sockets[:1]:
                return calls
            self._locks.end(calls)
        return None


def _link(path: str) -> str:
    """Where a gate leads to; "" if it is shut."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a fifth of the time
    except OSError:
        return ""
