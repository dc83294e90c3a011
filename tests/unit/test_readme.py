"""The README says what the code does."""

from pathlib import Path

from tfs_proxy.settings import TABLE

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_every_setting_stands_in_the_readme_with_its_default_and_meaning() -> None:
    """The table of settings is the code's own, row by row; `scripts/settings_table.py` prints it."""
    rows = [f"| `{row.variable}` | {row.default_text} | {row.help} | {row.aws} |" for row in TABLE]

    assert [row for row in rows if row not in README] == []


def test_no_setting_stands_in_the_readme_that_the_code_does_not_know() -> None:
    """A row that is left over after a setting went away is found."""
    known = {row.variable for row in TABLE}
    section = README.partition("## Settings")[2].partition("\n## ")[0]
    named = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}

    assert named == known
