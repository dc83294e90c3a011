"""HTTP headers as a script sees them: by name, in upper or lower case.

PERF: `requests` has such a mapping, too, but its import takes 50 ms and 5 MB that few scripts need.
"""

from collections.abc import Iterator, Mapping, MutableMapping


class HeaderMap(MutableMapping[str, str]):
    """Headers whose names differ in more than upper and lower case; they keep the form they were set in."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._entries = {name.lower(): (name, value) for name, value in (headers or {}).items()}

    def __getitem__(self, name: str) -> str:
        return self._entries[name.lower()][1]

    def __setitem__(self, name: str, value: str) -> None:
        self._entries[name.lower()] = name, value

    def __delitem__(self, name: str) -> None:
        del self._entries[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        """Whether another mapping has the same values under the same names."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return self._values() == HeaderMap(other)._values()

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> "HeaderMap":
        """The same headers, to be changed apart from these."""
        return HeaderMap(self)

    def _values(self) -> dict[str, str]:
        return {lower: value for lower, (_, value) in self._entries.items()}
