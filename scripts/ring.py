"""Runs rings of tests/rings.toml one after another and prints the seconds of each: `ring.py contract unit`.

A ring that takes longer than its seconds is warned about; under CI one of more than four times as many fails.
"""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RINGS = tomllib.loads((ROOT / "tests" / "rings.toml").read_text())
NOISE = 4


def arguments(name: str, *, ci: bool) -> list[str]:
    """What pytest gets for a ring."""
    ring = RINGS[name]
    words = [*ring["paths"], *ring.get("options", [])]
    words += [f"--ignore={path}" for other in ring.get("without", []) for path in RINGS[other]["paths"]]
    return [*words, "--durations=30"] if ci else words


def verdict(name: str, taken: float, *, ci: bool) -> tuple[str, bool]:
    """A line on a ring's time, and whether the ring took too long to pass."""
    seconds = RINGS[name]["seconds"]
    line = f"ring {name}: {taken:.0f} s, budget {seconds} s"
    if taken <= seconds:
        return line, False
    return f"{line}: WARNING, IT TOOK LONGER THAN ITS BUDGET", ci and taken > NOISE * seconds


def main() -> None:
    """Run the rings that the command line names; a failed one is the last."""
    ci = bool(os.environ.get("CI"))
    lines, late = [], False
    for name in sys.argv[1:]:
        started = time.monotonic()
        status = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments(name, ci=ci)], check=False
        ).returncode
        line, too_long = verdict(name, time.monotonic() - started, ci=ci)
        lines.append(line)
        late = late or too_long
        if status:
            sys.exit("\n".join([*lines, f"ring {name}: failed"]))
    print("\n".join(lines), flush=True)
    if late:
        sys.exit(f"a ring took more than {NOISE} times its budget (tests/rings.toml)")


if __name__ == "__main__":
    main()
