"""Flags that have another name by now: their old one is taken still, and no help shows it."""

import argparse


def also_as(old: str, flag: argparse.Action, parser: argparse.ArgumentParser) -> None:
    """Let ``old`` mean ``flag``, too; argparse would list a second name in the help."""
    parser._option_string_actions[old] = flag  # noqa: SLF001
