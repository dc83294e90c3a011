"""Print the README's table of settings from `tfs_proxy.settings.TABLE`."""

from tfs_proxy.settings import TABLE

HEAD = ("| variable | default | meaning | AWS's default, where it differs |", "|---|---|---|---|")


def rows() -> list[str]:
    """The table's lines, one a setting."""
    return [*HEAD, *(f"| `{row.variable}` | {row.default_text} | {row.help} | {row.aws} |" for row in TABLE)]


if __name__ == "__main__":
    print("\n".join(rows()))
