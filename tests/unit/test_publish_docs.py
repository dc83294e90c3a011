"""The documentation of a release lies beside that of older ones."""

import json
import subprocess
from pathlib import Path

from support.loading import load_script

script = load_script("publish_docs")


def documentation(folder: Path, version: str, text: str) -> Path:
    """What `make release` makes of a version."""
    (folder / version).mkdir(parents=True)
    (folder / version / "index.html").write_text(text)
    return folder


def test_older_versions_stay_and_the_root_leads_to_the_newest(tmp_path: Path) -> None:
    """1.10.0 is newer than 1.9.0, also if 1.9.1 is published later; a version can be published again."""
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)

    def shown(path: str) -> str:
        words = ["git", "-C", str(remote), "show", f"gh-pages:{path}"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    for number, version in enumerate(["1.9.0", "1.10.0", "1.9.1", "1.9.0"]):
        script.publish(documentation(tmp_path / str(number), version, f"build {number}"), str(remote))

    assert [entry["version"] for entry in json.loads(shown("versions.json"))] == ["1.10.0", "1.9.1", "1.9.0"]
    assert "url=1.10.0/" in shown("index.html")
    assert [shown(f"{version}/index.html") for version in ("1.9.0", "1.10.0", "1.9.1")] == [
        "build 3",
        "build 1",
        "build 2",
    ]


def test_what_is_there_already_is_not_published_again(tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    docs = documentation(tmp_path / "docs", "1.0.0", "")
    for _ in range(2):
        script.publish(docs, str(remote))
    count = ["git", "-C", str(remote), "rev-list", "--count", "gh-pages"]
    assert subprocess.run(count, check=True, capture_output=True, text=True).stdout == "1\n"
