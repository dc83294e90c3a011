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

from tfs_proxy.names import is_model_name


def gate(folder: Path, model: str, instance: int) -> Path:
    """The link to one of a model's model servers."""
    return folder / f"{model}.{instance}"


def calls_file(folder: Path, model: str) -> Path:
    """The file that is locked while there are calls to the model."""
    return folder / f"{model}.calls"


class Gates:
    """The gates in ``folder``, as they are at the moment of each question."""

    def __init__(self, folder: Path, instances: int) -> None:
        self._folder = folder
        self._instances = instances
        self._calls: Counter[str] = Counter()
        self._locked: dict[str, int] = {}

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
        if not is_model_name(model) or not self._begin(model):
            yield ()
            return
        try:
            # After the lock: who removes the links looks for it afterwards.
            yield self.sockets(model)
        finally:
            self._end(model)

    def _begin(self, model: str) -> bool:
        """Count a call; False if the model has no file, so no gates either."""
        if not self._calls[model]:
            try:
                descriptor = os.open(calls_file(self._folder, model), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                del self._calls[model]
                return False
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._locked[model] = descriptor
        self._calls[model] += 1
        return True

    def _end(self, model: str) -> None:
        self._calls[model] -= 1
        if not self._calls[model]:
            del self._calls[model]
            os.close(self._locked.pop(model))


class SharedGates:
    """The gates of model servers that have all models of one archive: ``paths``, a link for each of them.

    A call needs no file: nothing is unloaded while the router runs.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(map(str, paths))

    def sockets(self, _: str) -> tuple[str, ...]:
        """The sockets of the model servers that are ready, whatever the model: they know which they have."""
        return tuple(link for path in self._paths if (link := _link(path)))

    def have_led_to(self, _: str) -> bool:
        """Whether there are model servers at all."""
        return bool(self._paths)

    @contextmanager
    def call(self, model: str) -> Iterator[tuple[str, ...]]:
        """The same around a call."""
        yield self.sockets(model)


def _link(path: str) -> str:
    """Where a gate leads to; "" if it is shut."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a fifth of the time
    except OSError:
        return ""
