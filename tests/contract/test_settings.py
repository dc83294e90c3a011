"""The table of settings: variables and defaults, as the command prints them and as the page has them."""

import re
from pathlib import Path

from contract.conftest import Check
from contract.doors import said

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_variables_and_defaults(recorded: Check) -> None:
    """What `tfs-proxy settings` lists, in its groups."""
    groups: dict[str, dict[str, str | None]] = {}
    for line in said("settings").splitlines():
        if line and not line.startswith(" "):
            group = groups.setdefault(line, {})
        elif row := re.match(r"  ([A-Z_0-9]+)(?: \(default: (.*)\))?$", line):
            group[row[1]] = row[2]
    for name, rows in groups.items():
        recorded("settings", name, rows)


def test_the_page_has_the_same_variables_and_defaults() -> None:
    """docs/reference/settings.md."""
    rows = re.findall(r"^\| `([A-Z_0-9]+)` \| (.*?) \| .* \| ?(.*?) \|$", PAGE.read_text(), re.MULTILINE)
    printed = dict(re.findall(r"^  ([A-Z_0-9]+)(?: \(default: (.*)\))?$", said("settings"), re.MULTILINE))

    assert {name for name, _, _ in rows} == set(printed)
    for name, default, aws in rows:
        assert printed[name] == (f"{default or 'none'}; AWS's: {aws}" if aws else default or "none"), name
