"""State of a session as scripts have it: ``context.session``, a mapping whose values outlive the request."""

import json
from collections.abc import Iterator, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfs_proxy.serving.session_store import OpenSession, SessionStore

EXPECTED = (
    "values are bytes, and what JSON can say: None, bool, int, float, str, list, and dict with str keys"
)


class Session(MutableMapping[str, Any]):
    """Mapping of str to bytes and JSON values, which every worker sees as soon as they are set.

    What is read is a copy: a list or dict that was changed has to be set again. Each access reads or writes
    the store: it raises UnknownSession (400) once the session is over, and SessionFailure (424) if a value
    would be too much for the session or the store. Keys and values of other types raise TypeError.
    """

    def __init__(self, store: "SessionStore", opened: "OpenSession") -> None:
        self._store = store
        self._opened = opened

    @property
    def id(self) -> str:
        """Id that the client sends."""
        return self._opened.id

    @property
    def expires(self) -> datetime:
        """End of the session, in UTC."""
        return self._opened.expires

    def __getitem__(self, key: str) -> Any:
        value = self._store.get(self.id, _checked(key))
        if value is None:
            raise KeyError(key)
        return value if isinstance(value, bytes) else json.loads(value)

    def __setitem__(self, key: str, value: Any) -> None:
        _checked(key)
        if isinstance(value, (bytes, bytearray, memoryview)):
            self._store.put(self.id, key, bytes(value))
            return
        try:
            text = json.dumps(value)
            _refuse_other_keys(value)
        except (TypeError, ValueError) as error:
            kind = type(value).__name__
            raise TypeError(f"context.session[{key!r}] can't be a {kind} ({error}): {EXPECTED}") from None
        self._store.put(self.id, key, text)

    def __delitem__(self, key: str) -> None:
        if not self._store.remove(self.id, _checked(key)):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.keys(self.id))

    def __len__(self) -> int:
        return len(self._store.keys(self.id))

    def __repr__(self) -> str:
        return f"<Session until {self.expires:%Y-%m-%dT%H:%M:%SZ}>"


def _checked(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"context.session[{key!r}]: a key must be a str, not {type(key).__name__}")
    return key


def _refuse_other_keys(value: Any) -> None:
    """Raise TypeError for keys that JSON would turn into str."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a str")
    if isinstance(value, (dict, list, tuple)):
        for inner in value.values() if isinstance(value, dict) else value:
            _refuse_other_keys(inner)
