"""publish_docs.py REMOTE: adds the documentation in build/release/docs to a repository's branch gh-pages.

The folders of older versions stay; the menu of versions and the page at the root are written anew.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "build" / "release" / "docs"
BRANCH = "gh-pages"


def versions(site: Path) -> list[str]:
    """The versions that have a folder in ``site``, the newest first."""
    names = [path.name for path in site.iterdir() if path.is_dir() and path.name[0].isdigit()]
    return sorted(names, key=Version, reverse=True)


def write_root(site: Path) -> None:
    """Write what all versions share: the menu, and a page that leads to the newest."""
    names = versions(site)
    menu = [{"version": name, "title": name, "aliases": []} for name in names]
    (site / "versions.json").write_text(json.dumps(menu, indent=1) + "\n")
    (site / "index.html").write_text(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>tfs_proxy</title>\n'
        f'<meta http-equiv="refresh" content="0; url={names[0]}/">\n'
        f'<a href="{names[0]}/">The documentation of {names[0]}</a>\n</html>\n'
    )
    (site / ".nojekyll").touch()  # the host serves the files as they are


def publish(docs: Path, remote: str) -> None:
    """Push the versions of ``docs`` to the branch, which is begun if the repository has none."""
    author = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["authors"][0]
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"

        def git(*words: str, check: bool = True) -> int:
            identity = ("-c", f"user.name={author['name']}", "-c", f"user.email={author['email']}")
            words = ("git", "-C", str(site), *identity, *words)
            return subprocess.run(words, check=check).returncode

        site.mkdir()
        git("init", "--quiet", "--initial-branch", BRANCH)
        if git("fetch", "--quiet", "--depth", "1", remote, BRANCH, check=False) == 0:
            git("reset", "--quiet", "--hard", "FETCH_HEAD")
        for name in versions(docs):
            shutil.rmtree(site / name, ignore_errors=True)
            shutil.copytree(docs / name, site / name)
        write_root(site)
        git("add", "--all")
        if git("diff", "--cached", "--quiet", check=False):
            git("commit", "--quiet", "-m", f"Publish the documentation of {', '.join(versions(docs))}")
            git("push", "--quiet", remote, f"HEAD:{BRANCH}")


if __name__ == "__main__":
    publish(DOCS, sys.argv[1])
