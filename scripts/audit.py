"""Asks for known vulnerabilities of everything in requirements.lock: status 1 if there are any.

What the advisory service does not know, or all if it can't be reached, is "not checked": status 0, but 3 with
--release.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VULNERABLE, NOT_CHECKED = 1, 3
SHOWN = 10


def report() -> Any:
    """What pip-audit has found, by package; a sentence if it has found nothing out."""
    program = shutil.which("pip-audit")
    words = [program] if program else [str(Path(sys.executable).parent / "uv"), "tool", "run", "pip-audit"]
    words += ["-r", "requirements.lock", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return (done.stderr.strip().splitlines() or ["it says nothing"])[-1]


def main() -> int:
    """Print the findings; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="store_true", help="what is not checked is an error")
    release = parser.parse_args().release
    packages = report()
    if isinstance(packages, str):
        print(f"audit: not checked, since pip-audit or its service can't be reached: {packages}")
        return NOT_CHECKED if release else 0
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    found = [(each, flaw) for each in packages for flaw in each.get("vulns", ())]
    for package, flaw in found:
        fixed = ", ".join(flaw["fix_versions"]) or "no version"
        print(f"audit: {package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
    if skipped:
        more = ", ..." if len(skipped) > SHOWN else ""
        names = f"{', '.join(skipped[:SHOWN])}{more}"
        print(f"audit: not checked, since there are no advisory data here: {len(skipped)} packages ({names})")
    checked = len(packages) - len(skipped)
    if checked:
        print(f"audit: {len(found)} known vulnerabilities in {checked} packages")
    if found:
        return VULNERABLE
    return NOT_CHECKED if release and (skipped or not checked) else 0


if __name__ == "__main__":
    sys.exit(main())
