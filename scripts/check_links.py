"""Ask every outside link of the documentation, and print those that do not answer.

    python scripts/check_links.py

Exit status: 0 if all links answer, else 1. Not part of CI: other people's servers have bad days.
"""

import concurrent.futures
import re
import sys
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("*.md", "docs/**/*.md", "benchmarks/*.md", "code_examples/**/*.md")
LINK = re.compile(r"\]\((https?://[^)\s]+)\)")
TIMEOUT_SECONDS = 30.0
AT_ONCE = 8


def main() -> int:
    """Ask all links; the exit status."""
    links = outside_links()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        complaints = [text for text in pool.map(complaint, links) if text]
    print("\n".join([*complaints, f"{len(links)} links, {len(complaints)} of them broken"]))
    return 1 if complaints else 0


def outside_links() -> list[str]:
    """Every address that a text links to, once."""
    return sorted(
        {link for pattern in TEXTS for path in ROOT.glob(pattern) for link in LINK.findall(path.read_text())}
    )


def complaint(link: str) -> str:
    """What is wrong with a link; empty if it answers."""
    try:
        with requests.get(link, timeout=TIMEOUT_SECONDS, stream=True) as answer:
            return "" if answer.ok else f"{link}: {answer.status_code}"
    except requests.RequestException as error:
        return f"{link}: {error}"


if __name__ == "__main__":
    sys.exit(main())
