"""The subset of JSONPath that SageMaker's InputFilter and OutputFilter know (docs/reference/sagemaker.md)."""

import re
from collections.abc import Callable
from typing import Any

from tfs_proxy.errors import SettingsError

MAX_CHARACTERS = 63

_NAME = re.compile(r"\.([A-Za-z_$][\w$-]*)")
_QUOTED = re.compile(r"\s*'((?:[^'\\]|\\.)*)'\s*|\s*\"((?:[^\"\\]|\\.)*)\"\s*")
_INDICES = re.compile(r"\s*-?\d+\s*(,\s*-?\d+\s*)*")
_SLICE = re.compile(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*")

Step = Callable[[Any], Any]


class Missing(LookupError):
    """A document has nothing at the path."""


class JsonPath:
    """A path of ``$``, ``.name``, ``*``, ``['a','b']``, ``[0,2,-1]`` and ``[1:4]``.

    A step that can select several values gives a list of them (several names: an object). Steps after
    ``*``, a slice or several indices apply to each of these. Raises SettingsError if the text is not such
    a path, or is longer than 63 characters.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise SettingsError(
                f"The filter {text} has {len(text)} characters: {MAX_CHARACTERS} are allowed."
            )
        self.text = text
        self._steps = list(_steps(text))

    def __call__(self, document: Any) -> Any:
        """What the path selects in ``document``. Raises Missing if that is nothing."""
        values, several = [document], False
        for step, spreads in self._steps:
            values = [step(value) for value in values]
            if spreads:
                values = [member for value in values for member in value]
                several = True
        return values if several else values[0]

    @property
    def is_identity(self) -> bool:
        """Whether it is ``$``."""
        return not self._steps


def _steps(text: str) -> "list[tuple[Step, bool]]":
    if not text.startswith("$"):
        raise _refused(text, "it must begin with $")
    steps, at = [], 1
    while at < len(text):
        if name := _NAME.match(text, at):
            steps.append((_member(name[1]), False))
            at = name.end()
        elif text.startswith((".*", "[*]"), at):
            steps.append((_all_members, True))
            at += 2 if text[at] == "." else 3
        elif text[at] == "[" and (end := _closing(text, at)) > 0:
            steps.append(_bracket(text, text[at + 1 : end]))
            at = end + 1
        else:
            raise _refused(text, f"it can't be parsed from character {at + 1} on")
    return steps


def _closing(text: str, at: int) -> int:
    """Where the bracket that opens at ``at`` closes, outside of quoted names; -1 if it does not close."""
    match = re.compile(r"\[(?:[^'\"\]]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")*\]").match(text, at)
    return match.end() - 1 if match else -1


def _bracket(text: str, inside: str) -> tuple[Step, bool]:
    if _INDICES.fullmatch(inside):
        indices = [int(index) for index in inside.split(",")]
        return (_item(indices[0]), False) if len(indices) == 1 else (_items(indices), True)
    if bounds := _SLICE.fullmatch(inside):
        low, high = (None if bound is None else int(bound) for bound in bounds.groups())
        return _slice(low, high), True
    names = _names(inside)
    if not names:
        raise _refused(text, f"[{inside}] is neither a list of names or numbers nor a slice")
    return (_member(names[0]), False) if len(names) == 1 else (_members(names), False)


def _names(inside: str) -> list[str]:
    names, at = [], 0
    while match := _QUOTED.match(inside, at):
        names.append(re.sub(r"\\(.)", r"\1", match[1] if match[1] is not None else match[2]))
        at = match.end()
        if at == len(inside):
            return names
        if inside[at] != ",":
            return []
        at += 1
    return []


def _member(name: str) -> Step:
    def step(value: Any) -> Any:
        if not isinstance(value, dict) or name not in value:
            raise Missing(f"no member {name!r}")
        return value[name]

    return step


def _members(names: list[str]) -> Step:
    def step(value: Any) -> Any:
        return {name: _member(name)(value) for name in names}

    return step


def _all_members(value: Any) -> Any:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    raise Missing("no members")


def _item(index: int) -> Step:
    def step(value: Any) -> Any:
        if not isinstance(value, list) or not -len(value) <= index < len(value):
            raise Missing(f"no element {index}")
        return value[index]

    return step


def _items(indices: list[int]) -> Step:
    def step(value: Any) -> Any:
        return [_item(index)(value) for index in indices]

    return step


def _slice(low: int | None, high: int | None) -> Step:
    def step(value: Any) -> Any:
        if not isinstance(value, list):
            raise Missing("no list to slice")
        return value[low:high]

    return step


def _refused(text: str, reason: str) -> SettingsError:
    return SettingsError(f"The filter {text} can't be used: {reason}.")
