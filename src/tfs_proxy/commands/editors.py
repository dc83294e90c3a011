"""Completions for shells and JSON schemas for editors, printed by options of ``tfs-proxy``."""

import argparse

from tfs_proxy.errors import SettingsError
from tfs_proxy.names import how_to_install

SCHEMAS = ("standardize", "transform-job", "endpoint", "conform-requests")
"""For ``pack --standardize``, ``transform``, ``endpoint`` and ``conform --requests``."""


def schema_text(name: str) -> str:
    """One of `SCHEMAS`; ``make schemas`` writes it."""
    from importlib.resources import files

    return (files("tfs_proxy") / "schemas" / f"{name}.json").read_text(encoding="utf-8")


SHELLS = ("bash", "zsh", "fish")
PATHS = frozenset({"MODEL", "FILE", "FOLDER", "PATH", "JOB.json"})
"""Metavars of words that name files and folders."""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for one of `SHELLS`. Raises SettingsError if shtab, which writes it, is not installed."""
    try:
        import shtab
    except ImportError:
        raise SettingsError(f"--completion needs shtab: {how_to_install('completion')}.") from None
    _complete_paths(parser, shtab.FILE)
    return shtab.complete(parser, shell)


def _complete_paths(parser: argparse.ArgumentParser, how: object) -> None:
    """Have the shell complete files and folders in every word of `PATHS`, in sub-commands too."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for each in action.choices.values():
                _complete_paths(each, how)
        elif action.metavar in PATHS:
            action.complete = how  # type: ignore[attr-defined]  # where shtab looks for it
