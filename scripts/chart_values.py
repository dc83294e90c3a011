"""Make a page of the values of deploy/chart/values.yaml: each with its default and the comment above it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

INTRODUCTION = """# Helm chart values

All values of `deploy/chart` with their defaults, from the comments of its `values.yaml`.
[Run on Kubernetes](../how-to/kubernetes.md) has the commands, which take values as `--values FILE` and
`--set NAME=VALUE`. Names and types that are not here are refused, and what can't work together with a
sentence. One value has no default: where the model is.
"""
HEAD = "| value | default | meaning |\n|---|---|---|\n"
ROW = re.compile(r"( *)([A-Za-z]\w*):(?: +(.*))?")
OF_A_JUDGE = "checkov CKV_"
IN_BRACES = re.compile(r"\[\{.*\}\]|\{.*?\}")
CHOICE = re.compile(r"[\w-]+(?: \(\w+\))?: ")
PAGE = re.compile(r"docs/([\w/-]+\.md)")


@dataclass
class Value:
    """A value of the chart, or a group of values."""

    name: str
    default: str
    comment: list[str]
    members: list["Value"] = field(default_factory=list)


def values_page(text: str) -> str:
    """The page: a section for each group, and one for the values of no group."""
    top = values(text)
    single = Value("Others", "", [], [value for value in top if not value.members])
    groups = [value for value in top if value.members]
    return "\n".join([INTRODUCTION, *(section(group) for group in [*groups, single])])


def values(text: str) -> list[Value]:
    """The top values, those within them as their members; a comment stands directly above its value."""
    top: list[Value] = []
    path: list[tuple[int, Value]] = []
    comment: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("#"):
            comment.append(words.removeprefix("#").removeprefix(" "))
            continue
        if row := ROW.fullmatch(line):
            path = [(indent, value) for indent, value in path if indent < len(row[1])]
            within = path[-1][1] if path else None
            name = row[2] if within is None else f"{within.name}.{row[2]}"
            value = Value(name, row[3] or "", comment)
            (top if within is None else within.members).append(value)
            path.append((len(row[1]), value))
        elif words.startswith("- "):
            path[-1][1].default = f"[{words.removeprefix('- ')}]"
        comment = []
    return top


def section(group: Value) -> str:
    """A heading, the comment of the group, and a table of all that is within it."""
    rows = "".join(row(value) for member in group.members for value in flat(member))
    return f"## {group.name}\n\n{prose(group.comment)}\n\n{HEAD}{rows}"


def flat(value: Value) -> Iterable[Value]:
    """A value, then those within it."""
    return [value, *(inner for member in value.members for inner in flat(member))]


def row(value: Value) -> str:
    default = f"`{value.default}`" if value.default else ""
    return f"| `{value.name}` | {default} | {prose(value.comment)} |\n"


def prose(comment: Iterable[str]) -> str:
    """A comment as a paragraph: YAML as code, choices on lines of their own, no notes to other programs."""
    lines = [line for line in comment if not line.startswith(OF_A_JUDGE)]
    if lines and CHOICE.match(lines[0]):
        lines[1:] = [f"<br>{line}" if CHOICE.match(line) else line for line in lines[1:]]
    text = " ".join(" ".join(lines).split())
    return PAGE.sub(r"[\1](../\1)", IN_BRACES.sub(r"`\g<0>`", text))
