"""Makes an export write the same bytes each time; `keras_files` and ``__main__`` export within it.

TensorFlow keeps the variables that a function reads in a set ordered by their addresses, which differ from
run to run, and gives each SavedModel a random identity.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

FINGERPRINT = "fingerprint.pb"


@contextmanager
def in_the_same_order() -> Iterator[None]:
    """Makes TensorFlow keep a function's variables in the order in which it meets them."""
    from tensorflow.python.util import object_identity

    class OrderedWeakSet(object_identity.ObjectIdentityWeakSet):  # type: ignore[misc]
        def __init__(self, *items: Any) -> None:
            super().__init__()
            self._storage = _OrderedStorage()
            self.update(*items)

        def update(self, items: Any = ()) -> None:
            for item in items:
                self.add(item)

    with mock.patch.object(object_identity, "ObjectIdentityWeakSet", OrderedWeakSet):
        yield


class _OrderedStorage(dict[Any, None]):
    """A dict with the methods of a set that `OrderedWeakSet` needs."""

    def add(self, key: Any) -> None:
        """Keeps the place of a key that exists."""
        self.setdefault(key)

    def discard(self, key: Any) -> None:
        self.pop(key, None)


def name_by_contents(folder: Path) -> None:
    """Derives a SavedModel's identity from its contents, if it has one."""
    from tensorflow.core.protobuf import fingerprint_pb2

    path = folder / FINGERPRINT
    if not path.is_file():
        return
    fingerprint = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
    fingerprint.uuid = ""
    contents = fingerprint.SerializeToString(deterministic=True)
    fingerprint.uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, contents.hex()).int)
    path.write_bytes(fingerprint.SerializeToString(deterministic=True))
