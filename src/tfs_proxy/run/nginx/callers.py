"""Keys of callers: the files that list them, and the doors that need none."""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.header_names import API_KEY, AUTHORIZATION

LEAST_CHARACTERS = 32
MOST_CHARACTERS = 256
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEY = re.compile(r"[A-Za-z0-9._+/=-]*")
API_KEYS = "TFS_PROXY_API_KEYS"
ADMIN_KEYS = "TFS_PROXY_ADMIN_KEYS"
MAKES_ONE = "`openssl rand -hex 32` makes one"

REFUSED = (
    f"a key is needed: send one that is known here as {AUTHORIZATION}: Bearer KEY, or as {API_KEY}: KEY, and "
    "where both are sent, both must hold"
)
NOT_ADMIN = "this key may not load and unload models: a key of TFS_PROXY_ADMIN_KEYS is needed"


class Key(Struct, frozen=True):
    """A key with the name of its owner, who may load and unload models if ``is_admin``."""

    name: str
    key: str
    is_admin: bool


class Keys(Struct, frozen=True):
    """All keys of a run; without ``guards_all`` only loads and unloads need one."""

    keys: tuple[Key, ...]
    guards_all: bool


def keys_of(files: Mapping[str, tuple[str, bytes]]) -> Keys | None:
    """All keys of ``files``, path and content by the setting's variable; None without files of keys.

    Names and keys differ over all files. Raises SettingsError that names file and line, and shows no key.
    """
    keys = list[Key]()
    places = dict[str, str]()
    # Without keys of their own for loads and unloads, all keys are such.
    for variable, is_admin in ((API_KEYS, ADMIN_KEYS not in files), (ADMIN_KEYS, True)):
        if variable not in files:
            continue
        path, content = files[variable]
        count = len(keys)
        place = f"{variable}={path} can't be used: line"
        for number, name, key in _lines(place, content):
            for kind, text in (("name", name), ("key", key.lower())):
                if first := places.get(f"{kind} {text}"):
                    case = ", but for the case of its letters" if kind == "key" else ""
                    raise SettingsError(f"{place} {number} has the {kind} of {first}{case}.")
                places[f"{kind} {text}"] = f"line {number} of {path}"
            keys.append(Key(name, key, is_admin))
        if len(keys) == count:
            raise SettingsError(f"{place}s with a name and a key are missing; {MAKES_ONE}.")
    return Keys(tuple(keys), API_KEYS in files) if keys else None


def _lines(place: str, content: bytes) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(content.splitlines(), start=1):
        name, *rest = line.decode("ascii", "replace").split() or ["#"]
        if name.startswith("#"):
            continue
        if len(rest) != 1 or not NAME.fullmatch(name) or not KEY.fullmatch(rest[0]):
            raise SettingsError(
                f"{place} {number} must be a name and a key with a space between: a name has at most 64 "
                "letters, digits, '.', '_' and '-', a key may also have '+', '/' and '='."
            )
        if not LEAST_CHARACTERS <= len(rest[0]) <= MOST_CHARACTERS:
            sizes = f"{LEAST_CHARACTERS} to {MOST_CHARACTERS}; {MAKES_ONE}"
            raise SettingsError(
                f"{place} {number} has a key of {len(rest[0])} characters: it must have {sizes}."
            )
        yield number, name, rest[0]
