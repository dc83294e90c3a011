"""``tfs-proxy settings``: the variables that configure a run, with their defaults."""

import argparse
import shutil
import textwrap
from itertools import groupby

from tfs_proxy.commands.parts.printing import print_for_a_pipe
from tfs_proxy.errors import SettingsError
from tfs_proxy.names import printable, similar
from tfs_proxy.setting_rows import Setting
from tfs_proxy.settings import TABLE

DESCRIPTION = "List the environment variables that commands read, with defaults and what they mean."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of ``settings``."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a variable, or a part of its name")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or the rows that NAME names. Raises SettingsError if there is none."""
    name = (arguments.name or "").upper()
    rows = [row for row in TABLE if row.variable == name] or [row for row in TABLE if name in row.variable]
    if not rows:
        close = similar(name, [row.variable for row in TABLE])
        raise SettingsError(
            f"{printable(name)} is no setting" + (f": did you mean {close}?" if close else ".")
        )
    groups = groupby(rows, key=lambda row: row.group)
    print_for_a_pipe("\n\n".join("\n".join([group, *map(_lines, members)]) for group, members in groups))
    return 0


def _lines(row: Setting) -> str:
    aws = f"; AWS's: {row.aws}" if row.aws else ""
    text = textwrap.fill(row.help, shutil.get_terminal_size().columns - 6, break_on_hyphens=False)
    return f"  {row.variable} (default: {row.default_text or 'none'}{aws})\n{textwrap.indent(text, ' ' * 6)}"
