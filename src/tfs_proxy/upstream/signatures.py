"""Signatures by model version: asked of the model server once, and followed if no version is named.

A version never changes. What a label or no version at all means does: it is asked again after a while,
and at once when an answer turns out to come from another version.
"""

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from tfs_proxy.errors import BadInput, from_client
from tfs_proxy.serving_json.messages import Metadata
from tfs_proxy.signature import DEFAULT_SIGNATURE, Signature, Target

FOLLOW_SECONDS = 10.0
"""How long a label, or no version, is taken to mean what it meant."""

Fetch = Callable[[Target], Metadata]
"""Asks the model server for a target's metadata."""


class _Meaning(Struct, frozen=True):
    """Which version a target without one meant, until when (seconds of the monotonic clock)."""

    version: int
    until: float


def named(known: Mapping[str, Signature], target: Target) -> Signature:
    """The signature of the target's name; raises BadInput that lists those that are ``known``."""
    name = target.signature or DEFAULT_SIGNATURE
    if name not in known:
        raise BadInput(
            f'The model {target.model} has no signature "{from_client(name)}"; '
            f"its signatures are {', '.join(sorted(known)) or 'none'}."
        )
    return known[name]


class Signatures:
    """What is known of all models; shared by the threads of a worker."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._known: dict[tuple[str, int], Mapping[str, Signature]] = {}
        self._meanings: dict[tuple[str, str | None], _Meaning] = {}

    def get(self, target: Target) -> Signature:
        """The signature of the target's name; raises what ``fetch`` raises, and BadInput for no such name."""
        return named(self.by_name(target), target)

    def by_name(self, target: Target) -> Mapping[str, Signature]:
        """All signatures of the target's model version; raises what ``fetch`` raises."""
        version = target.version
        if version is None:
            meaning = self._meanings.get((target.model, target.label))
            if meaning is not None and self._clock() < meaning.until:
                version = meaning.version
        known = None if version is None else self._known.get((target.model, version))
        return self._ask(target) if known is None else known

    def answered(self, target: Target, version: int | None) -> None:
        """Note which version answered: if it is not the one a target meant, that is asked again."""
        if target.version is None and version is not None:
            meaning = self._meanings.get((target.model, target.label))
            if meaning is not None and meaning.version != version:
                self._meanings.pop((target.model, target.label), None)

    def forget(self, model: str | None = None) -> None:
        """Forget a model that is unloaded or replaced; None forgets all."""
        for version in [key for key in self._known if model in {None, key[0]}]:
            self._known.pop(version, None)
        for meaning in [key for key in self._meanings if model in {None, key[0]}]:
            self._meanings.pop(meaning, None)

    def _ask(self, target: Target) -> Mapping[str, Signature]:
        metadata = self._fetch(Target(target.model, target.version, target.label))
        if target.version is not None:
            self._known[target.model, target.version] = metadata.signatures
        elif metadata.version is not None:
            self._known[target.model, metadata.version] = metadata.signatures
            until = self._clock() + FOLLOW_SECONDS
            self._meanings[target.model, target.label] = _Meaning(metadata.version, until)
        return metadata.signatures
