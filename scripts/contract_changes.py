"""Records that CHANGELOG.md says what has changed in tests/contract: `make contract-changes`.

tests/contract.sha256 has the digest of each file of the contract's tests and, in its first line, of the
newest section of CHANGELOG.md at that time; a unit test fails while a file differs. Nothing is recorded
if that section has not changed since, but with --same-for-users, for a change of the tests that no user
could notice.
"""

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path("tests") / "contract.sha256"
SECTION = re.compile(r"^## .*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def digests(root: Path) -> dict[str, str]:
    """Digests by path of the contract's files, and of CHANGELOG.md's newest section."""
    section = SECTION.search((root / "CHANGELOG.md").read_text())
    contents = {"CHANGELOG.md": section[0].encode() if section else b""}
    for path in sorted((root / "tests" / "contract").rglob("*")):
        if path.suffix in {".py", ".json"}:
            contents[path.relative_to(root).as_posix()] = path.read_bytes()
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def recorded(root: Path) -> dict[str, str]:
    lines = (root / RECORD).read_text().splitlines() if (root / RECORD).exists() else []
    return {name: digest for digest, name in (line.split() for line in lines)}


def changed(root: Path) -> list[str]:
    """Files of the contract that differ from what is recorded, are new or have gone."""
    now, before = digests(root), recorded(root)
    names = {name for name, _ in now.items() ^ before.items()}
    return sorted(names - {"CHANGELOG.md"})


def record(root: Path, *, same_for_users: bool) -> None:
    """Write the digests; ends this program if the contract has changed and CHANGELOG.md has not."""
    now, before = digests(root), recorded(root)
    if names := changed(root):
        if not same_for_users and now["CHANGELOG.md"] == before.get("CHANGELOG.md"):
            sys.exit(
                f"{', '.join(names)}: say in the newest section of CHANGELOG.md what users will notice, and "
                "call this again; if they notice nothing: make contract-changes SAME_FOR_USERS=1"
            )
        (root / RECORD).write_text("".join(f"{digest}  {name}\n" for name, digest in now.items()))


if __name__ == "__main__":
    record(ROOT, same_for_users="--same-for-users" in sys.argv[1:])
