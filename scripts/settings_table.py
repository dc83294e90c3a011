"""Print the tables of settings from `settings.TABLE`; `make docs-reference` puts them into docs/."""

from itertools import groupby

from tfs_proxy.settings.settings import TABLE

HEAD = ("| variable | default | meaning | AWS's default, if it differs |", "|---|---|---|---|")


def tables() -> str:
    """A heading and a table for each group of settings."""
    return "\n\n".join(
        "\n".join(
            [
                f"## {group}\n",
                *HEAD,
                *(f"| `{row.variable}` | {row.default_text} | {row.help} | {row.aws} |" for row in rows),
            ]
        )
        for group, rows in groupby(TABLE, key=lambda row: row.group)
    )


if __name__ == "__main__":
    print(tables())
