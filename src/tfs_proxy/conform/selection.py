"""Which checks are run: ``--only`` and ``--skip`` name groups, or checks as ``GROUP/CHECK``."""

from collections.abc import Sequence

from tfs_proxy.conform.check import Check
from tfs_proxy.errors import SettingsError


def selected(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> list[Check]:
    """The checks of ``only`` (all, if it is empty) without those of ``skip``; names may be joined by commas.

    Raises SettingsError for a name that is neither a group nor a check, and if nothing is left.
    """
    wanted, unwanted = _names(checks, only, "--only"), _names(checks, skip, "--skip")
    chosen = [check for check in checks if not wanted or _is_named(check, wanted)]
    chosen = [check for check in chosen if not _is_named(check, unwanted)]
    if not chosen:
        raise SettingsError("No check is left: --skip has all that --only has.")
    return chosen


def _names(checks: Sequence[Check], given: Sequence[str], flag: str) -> set[str]:
    names = {name.strip() for each in given for name in each.split(",") if name.strip()}
    known = {check.name for check in checks} | {check.group for check in checks}
    for name in sorted(names - known):
        groups = ", ".join(dict.fromkeys(check.group for check in checks))
        raise SettingsError(f"{flag} {name} is neither a group ({groups}) nor a check: --list has all names.")
    return names


def _is_named(check: Check, names: set[str]) -> bool:
    return check.name in names or check.group in names
