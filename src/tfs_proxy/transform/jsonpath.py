"""The subset of JSONPath that SageMaker's InputFilter and OutputFilter know (docs/reference/sagemaker.md)."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tfs_proxy.values.errors import SettingsError

MAX_CHARACTERS = 63

_STEP = re.compile(
    r"""
    \.(?P<name>[A-Za-z_$][\w$-]*)
  | (?P<all>\.\*|\[\*\])
  | \[\s*(?P<indices>-?\d+\s*(?:,\s*-?\d+\s*)*)\]
  | \[\s*(?P<low>-?\d+)?\s*:\s*(?P<high>-?\d+)?\s*\]
  | \[(?P<names>QUOTED(?:,QUOTED)*)\]
    """.replace("QUOTED", r"""\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*"""),
    re.VERBOSE,
)
_QUOTED_NAME = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")

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
        """The selected part of ``document``. Raises Missing if there is none."""
        values = [document]
        several = False
        for step, spreads in self._steps:
            values = [step(value) for value in values]
            if spreads:
                values = [member for value in values for member in value]
                several = True
        return values if several else values[0]

    @property
    def is_identity(self) -> bool:
        return not self._steps


def _steps(text: str) -> Iterator[tuple[Step, bool]]:
    if not text.startswith("$"):
        raise SettingsError(f"The filter {text} can't be used: it must begin with $.")
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise SettingsError(
                f"The filter {text} can't be used: it can't be parsed from character {at + 1} on."
            )
        yield _step(match)
        at = match.end()


def _step(match: "re.Match[str]") -> tuple[Step, bool]:
    """The step of a part of a path, and True if the steps after it apply to each of several values."""
    if match["all"]:
        return _all_members, True
    if match["name"]:
        return partial(_member, match["name"]), False
    if match["indices"]:
        indices = [int(index) for index in match["indices"].split(",")]
        return (partial(_elements, indices), True) if indices[1:] else (partial(_element, indices[0]), False)
    if match["names"]:
        quoted = _QUOTED_NAME.findall(match["names"])
        names = [re.sub(r"\\(.)", r"\1", single or double) for single, double in quoted]
        return (partial(_members, names), False) if names[1:] else (partial(_member, names[0]), False)
    low, high = (None if bound is None else int(bound) for bound in match.group("low", "high"))
    return partial(_slice, slice(low, high)), True


def _member(name: str, value: Any) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise Missing(f"no member {name!r}")
    return value[name]


def _members(names: list[str], value: Any) -> Any:
    return {name: _member(name, value) for name in names}


def _all_members(value: Any) -> Any:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    raise Missing("no members")


def _element(index: int, value: Any) -> Any:
    if not isinstance(value, list) or not -len(value) <= index < len(value):
        raise Missing(f"no element {index}")
    return value[index]


def _elements(indices: list[int], value: Any) -> Any:
    return [_element(index, value) for index in indices]


def _slice(bounds: slice, value: Any) -> Any:
    if not isinstance(value, list):
        raise Missing("no list to slice")
    return value[bounds]
