"""Names, metavars, choices and defaults of every command's options; not the prose of their help."""

import re
from typing import Any

import pytest

from contract.conftest import Check
from contract.doors import said

COMMANDS = re.findall(r"^  ([a-z][a-z-]+) ", said("--help"), re.MULTILINE)
OF_THE_MODEL_SERVER = {"model-server", "tensorflow-serving"}
OPTION = re.compile(r"^  (-.*?|[A-Z][\w.]*)(?:  +(.*))?$")


def options(text: str) -> dict[str, Any]:
    """All options and arguments of a command's help: names, metavar or choices, default, and if it must be given."""
    usage, _, rest = text.partition("\n\n")
    rest = rest[
        rest.find("positional arguments:\n")
        if "positional arguments:\n" in rest
        else rest.find("options:\n") :
    ]
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", usage)) != usage:
        usage = shorter
    found: dict[str, Any] = {}
    words: list[str] = []
    for line in rest.splitlines():
        if match := OPTION.match(line):
            names = re.findall(r"(?<![\w{,|])--?[a-z][\w-]*", match[1]) or [match[1]]
            value = (
                re.sub(r"^.*?(?:--[\w-]+|-\w)(?: |$)", "", match[1].rpartition(", ")[2])
                if match[1][0] == "-"
                else ""
            )
            words = [match[2] or ""]
            found[" ".join(names)] = [value, words, names[-1] in usage.split()]
        elif line.startswith("    "):
            words.append(line.strip())
    for name, (value, help_words, is_needed) in found.items():
        default = re.findall(r"\(default: (.*)\)$|^default: (.*)$", " ".join(help_words).strip())
        said_default = "".join(default[0]) if default else None
        if said_default and " " in said_default:
            said_default = "in words"
        found[name] = [value, said_default, "needed" if is_needed else "optional"]
    return found


def flags(text: str) -> dict[str, Any]:
    """The flags of the model server with their defaults, and those without effect."""
    without = re.findall(r"^Accepted without effect: (.*)\.$", text, re.MULTILINE)
    return {**dict(re.findall(r"^  (--\w+)=(.*)$", text, re.MULTILINE)), "without effect": without}


def test_the_commands(recorded: Check) -> None:
    """Their names, and the options before them."""
    top = {name: each for name, each in options(said("--help")).items() if name != "COMMAND"}
    recorded("commands", "tfs-proxy", {**top, "COMMAND": COMMANDS})


@pytest.mark.parametrize("command", [*COMMANDS, *sorted(OF_THE_MODEL_SERVER)])
def test_the_options_of_a_command(recorded: Check, command: str) -> None:
    """As its help has them."""
    text = said(command, "--help")
    recorded("commands", command, flags(text) if command in OF_THE_MODEL_SERVER else options(text))
