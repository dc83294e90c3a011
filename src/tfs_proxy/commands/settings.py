"""``tfs-proxy settings``: the variables that configure a run, with their defaults."""

import argparse
import textwrap
from itertools import groupby

from tfs_proxy.settings.rows import Setting
from tfs_proxy.settings.settings import TABLE
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.names import printable, similar

DESCRIPTION = "List the environment variables that commands read, with defaults and what they mean."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a variable, or a part of its name")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table, or the rows of NAME. Raises SettingsError if there is none."""
    name = (arguments.name or "").upper()
    rows = [row for row in TABLE if row.variable == name] or [row for row in TABLE if name in row.variable]
    if not rows:
        close = similar(name, [row.variable for row in TABLE])
        hint = f": did you mean {close}?" if close else "."
        raise SettingsError(f"{printable(arguments.name)} is no setting{hint}")
    groups = groupby(rows, key=lambda row: row.group)
    print("\n\n".join("\n".join([group, *map(_lines, members)]) for group, members in groups))
    return 0


def _lines(row: Setting) -> str:
    aws = f"; AWS's: {row.aws}" if row.aws else ""
    text = textwrap.indent(textwrap.fill(row.help, 94, break_on_hyphens=False), " " * 6)
    return f"  {row.variable} (default: {row.default_text or 'none'}{aws})\n{text}"
