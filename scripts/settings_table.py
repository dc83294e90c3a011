"""Print the table of settings from `tfs_proxy.settings.TABLE`; `make docs-reference` puts it into docs/."""

from tfs_proxy.settings import TABLE

HEAD = ("| variable | default | meaning | AWS's default, if it differs |", "|---|---|---|---|")


def table_lines() -> list[str]:
    """The table's lines, one for each setting."""
    return [*HEAD, *(f"| `{row.variable}` | {row.default_text} | {row.help} | {row.aws} |" for row in TABLE)]


if __name__ == "__main__":
    print("\n".join(table_lines()))
