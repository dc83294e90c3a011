"""Which models leave to make room or because nobody asks for them; only with ``--multi-model``, and pure."""

from collections.abc import Iterable

from msgspec import Struct


class ModelUse(Struct, frozen=True):
    """A loaded model: its memory, when its last request came, and whether one is being answered.

    ``used_at`` is on the clock of the caller, in seconds; a model without a request counts from its load.
    """

    name: str
    memory_bytes: int
    used_at: float
    in_use: bool = False


def least_recently_used(models: Iterable[ModelUse], missing_bytes: int) -> tuple[str, ...]:
    """The names of the models to unload, in order, so that ``missing_bytes`` are given back; at least one.

    With 0 bytes one place is wanted. Models in use stay. Nothing if all others together are not enough:
    then it helps nobody to unload them.
    """
    leaving: list[str] = []
    for model in _longest_idle_first(models):
        leaving.append(model.name)
        missing_bytes -= model.memory_bytes
        if missing_bytes <= 0:
            return tuple(leaving)
    return ()


def idle(models: Iterable[ModelUse], now: float, idle_seconds: float) -> tuple[str, ...]:
    """The names of the models without a request for ``idle_seconds``, the longest idle first; 0 is never."""
    if idle_seconds == 0:
        return ()
    return tuple(model.name for model in _longest_idle_first(models) if now - model.used_at >= idle_seconds)


def _longest_idle_first(models: Iterable[ModelUse]) -> list[ModelUse]:
    unused = (model for model in models if not model.in_use)
    return sorted(unused, key=lambda model: (model.used_at, model.name))
