"""Makes the files of a release in build/release: `make release`, and `make release REHEARSAL=1` to rehearse.

They come from the commit that is checked out, never from the working tree. A rehearsal takes a version whose
section of CHANGELOG.md is still called unreleased, or is another's; its files are not for publishing.

    tfs_proxy-VERSION.tar.gz, tfs_proxy-VERSION-py3-none-any.whl   the same bytes from each copy of the commit
    tfs-proxy-VERSION.tgz   the chart, of the same bytes, too
    sbom.cdx.json           CycloneDX: the packages of the extra `all`, as requirements.lock pins them
    docs/, docs.tar.gz      index.html leads to VERSION/; versions.json is the menu of all versions
    RELEASE_NOTES.md        the newest section of CHANGELOG.md
    provenance.intoto.json  how they were made, in SLSA's words; who publishes the files signs that
    SHA256SUMS              of all files but the folder docs/
"""

import argparse
import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from publish_docs import write_root

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "build" / "release"
JUDGE = ROOT / "build" / "judges" / "release" / "bin"
HELM = ROOT / "build" / "judges" / "chart" / "bin" / "helm"
UV = ROOT / ".venv" / "bin" / "uv"
SECTION = re.compile(
    r"^## (?P<version>\S+)(?P<rest>[^\n]*)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
VERSION = re.compile(r'^__version__ = "(.*)"', re.MULTILINE)
SOURCES = "src/tfs_proxy/"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
INSTALL = """\
### Install

```console
$ sha256sum --check --ignore-missing SHA256SUMS
$ python3 -m venv .venv && . .venv/bin/activate
$ pip install './{wheel}[embedded]'
```

Images are `{images}:v{version}-cpu`, `-gpu` and `-embedded`, and `oci://{chart}` runs one on Kubernetes.
`tfs_proxy-{version}.tar.gz` has what a clone has: README, `make` for images, `deploy/`, `code_examples/`.
`docs.tar.gz` is the documentation, to be read at http://localhost:8000/{version}/ after:

```console
$ mkdir docs && tar -xzf docs.tar.gz -C docs && python3 -m http.server -d docs
```
"""


@dataclass(frozen=True)
class Source:
    """The commit that is released, and the newest section of its CHANGELOG.md."""

    commit: str
    seconds: int
    """Time of the commit since 1970, which every file of the release gets."""

    version: str
    heading: str
    changes: str
    rehearsal: bool

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.seconds)}


def main() -> None:
    """Make the files and print their sizes and digests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearsal", action="store_true", help="the version need not be decided yet")
    source = look(ROOT, rehearsal=parser.parse_args().rehearsal)
    rehearsed = f" REHEARSED as '{source.heading}', not for publishing" if source.rehearsal else ""
    print(f"release: {source.version}{rehearsed}, commit {source.commit[:12]}", flush=True)
    shutil.rmtree(RELEASE, ignore_errors=True)
    RELEASE.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="tfs-proxy-release-") as folder:
        first, second = (unpacked(source, Path(folder) / name) for name in ("first", "second"))
        sdist, wheel = build_twice(source, first, second)
        judge(sdist, wheel)
        write_sbom(source, first)
        write_notes(source, wheel)
        build_docs(source, first)
    write_provenance(source)
    write_checksums()


def look(root: Path, *, rehearsal: bool) -> Source:
    """The source of a release; ends this program if it is not committed, or its CHANGELOG.md not ready."""
    if changed := run("git", "-C", root, "status", "--porcelain"):
        sys.exit(f"release: it is made of a commit; commit or remove these first:\n{changed}")
    version = VERSION.findall((root / SOURCES / "__init__.py").read_text())[0]
    section = SECTION.search((root / "CHANGELOG.md").read_text())
    if section is None or not section["text"].strip():
        sys.exit("release: CHANGELOG.md has no section '## VERSION' that says what changed")
    heading = (section["version"] + section["rest"]).strip()
    if not rehearsal:
        refuse_undecided(root, version, section["version"], heading)
    return Source(
        commit=run("git", "-C", root, "rev-parse", "HEAD"),
        seconds=int(run("git", "-C", root, "log", "-1", "--format=%ct")),
        version=version,
        heading=heading,
        changes=section["text"].strip(),
        rehearsal=rehearsal,
    )


def refuse_undecided(root: Path, version: str, newest: str, heading: str) -> None:
    """End this program if a version can't be published: its names differ, or it has been released before."""
    if newest != version:
        sys.exit(f"release: the package is {version}, but CHANGELOG.md begins with '{heading}'")
    if "unreleased" in heading:
        sys.exit(f"release: CHANGELOG.md says '{heading}'; give it a day, or take REHEARSAL=1")
    tag = f"v{version}"
    tags = run("git", "-C", root, "tag", "--list", tag), run("git", "-C", root, "tag", "--points-at", "HEAD")
    if tags[0] and tag not in tags[1].split():
        sys.exit(f"release: {tag} is another commit; a version is released once")


def run(*words: object, folder: Path = ROOT, env: Mapping[str, str] = os.environ) -> str:
    """What a program prints; ends this one with all that it said if it fails."""
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=env, check=False, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"release: {Path(str(words[0])).name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def unpacked(source: Source, folder: Path) -> Path:
    """The commit's files in ``folder``, where no repository is around them."""
    folder.mkdir()
    packed = folder.with_suffix(".tar")
    run("git", "archive", source.commit, "-o", packed)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="tar")
    return folder


def build_twice(source: Source, first: Path, second: Path) -> tuple[Path, Path]:
    """Build sdist, wheel and chart of two copies and compare the bytes; the second wheel is of its sdist."""
    hatch(source.env, first, RELEASE, "sdist", "wheel")
    for copy, folder in ((first, RELEASE), (second, second / "dist")):
        run(HELM, "package", copy / "deploy" / "chart", "--destination", folder)
    sdist, wheel, chart = (next(RELEASE.glob(pattern)) for pattern in ("*.tar.gz", "*.whl", "*.tgz"))
    other = {**source.env, "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "1"}
    hatch(other, second, second / "dist", "sdist")
    with tarfile.open(second / "dist" / sdist.name) as archive:
        archive.extractall(second / "dist", filter="data")
    hatch(other, second / "dist" / sdist.name.removesuffix(".tar.gz"), second / "dist", "wheel")
    for path in (sdist, wheel, chart):
        if not filecmp.cmp(path, second / "dist" / path.name, shallow=False):
            sys.exit(f"release: two builds of {path.name} differ: {second / 'dist'}")
        print(f"release: two builds of {path.name} are the same bytes", flush=True)
    check_contents(first, sdist, wheel)
    return sdist, wheel


def hatch(env: dict[str, str], folder: Path, into: Path, *targets: str) -> None:
    """Build with the hatchling of requirements.lock."""
    words = [word for target in targets for word in ("-t", target)]
    run(sys.executable, "-m", "hatchling", "build", *words, "-d", into, folder=folder, env=env)


def check_contents(copy: Path, sdist: Path, wheel: Path) -> None:
    """Compare with the commit: the sdist has every file of it, the wheel those of the package."""
    files = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if not path.is_dir()}
    with tarfile.open(sdist) as archive:
        lacks = files - {name.split("/", 1)[-1] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as zipped:
        names = {"src/" + name for name in zipped.namelist()}
    lacks |= {name for name in files if name.startswith(SOURCES)} - names
    if lacks:
        sys.exit(f"release: the sdist or the wheel lacks {', '.join(sorted(lacks))}")


def judge(sdist: Path, wheel: Path) -> None:
    """Have the field's tools look at what was built."""
    for words in (
        ["twine", "check", "--strict", sdist, wheel],
        ["check-wheel-contents", wheel],
        ["validate-pyproject", "pyproject.toml"],
        ["pyroma", "--min", "10", sdist],
    ):
        run(JUDGE / str(words[0]), *words[1:])
        print(f"release: {words[0]}: {'10 of 10' if words[0] == 'pyroma' else 'passed'}", flush=True)


def write_sbom(source: Source, copy: Path) -> None:
    """Write the packages of the extra `all`, at the versions of requirements.lock, as CycloneDX."""
    pinned = copy / "build" / "all.txt"
    pinned.parent.mkdir()
    run(
        UV, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes",
        "--no-emit-index-url", "--no-header", "--no-annotate", "--extra", "all",
        "--constraint", "requirements.lock", "pyproject.toml", "-o", pinned, folder=copy,
    )  # fmt: skip
    program, project = JUDGE / "cyclonedx-py", ("--pyproject", "pyproject.toml")
    made = run(
        program, "requirements", "--output-reproducible", *project, pinned, folder=copy, env=source.env
    )
    bill = json.loads(made)
    bill["metadata"]["component"]["version"] = source.version
    for component in bill["components"]:
        del component["description"]  # the line of the file that it comes from, with all hashes
    write_json(RELEASE / "sbom.cdx.json", bill)


def write_notes(source: Source, wheel: Path) -> None:
    """Write what changed, and how to install and check the files."""
    head = f"This is a rehearsal of {source.heading}: not for publishing.\n\n" if source.rehearsal else ""
    images, chart = (URLS[name].removeprefix("https://") for name in ("Images", "Chart"))
    install = INSTALL.format(wheel=wheel.name, version=source.version, images=images, chart=chart)
    (RELEASE / "RELEASE_NOTES.md").write_text(f"{head}{source.changes}\n\n{install}")


def build_docs(source: Source, copy: Path) -> None:
    """Build the site for VERSION/ with the menu of versions, beside the files that all versions share."""
    for made in (ROOT / "docs" / "assets").glob("mermaid*"):
        shutil.copy(made, copy / "docs" / "assets")
    config = copy / "zensical.toml"
    config.write_text(config.read_text() + '\n[project.extra.version]\nprovider = "mike"\n')
    run(sys.executable, "-m", "zensical", "build", "--strict", "--clean", folder=copy)
    docs = RELEASE / "docs"
    shutil.copytree(copy / "build" / "site", docs / source.version)
    write_root(docs)
    same = ("--sort=name", f"--mtime=@{source.seconds}", "--owner=0", "--group=0", "--mode=u=rwX,go=rX")
    run("tar", *same, "--use-compress-program=gzip -n", "-cf", RELEASE / "docs.tar.gz", ".", folder=docs)


def write_provenance(source: Source) -> None:
    """Write an in-toto statement about all files, with SLSA's predicate."""
    home = URLS["Homepage"]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in files()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{home}/blob/{source.commit}/scripts/release.py",
                "externalParameters": {"version": source.version, "rehearsal": source.rehearsal},
                "internalParameters": {"SOURCE_DATE_EPOCH": source.seconds},
                "resolvedDependencies": [
                    {"uri": f"git+{home}@{source.commit}", "digest": {"gitCommit": source.commit}},
                    {"name": "requirements.lock", "digest": {"sha256": digest(ROOT / "requirements.lock")}},
                ],
            },
            "runDetails": {"builder": {"id": f"{home}/blob/{source.commit}/Makefile"}},
        },
    }
    write_json(RELEASE / "provenance.intoto.json", statement)


def write_checksums() -> None:
    """Write SHA256SUMS, for `sha256sum --check`, and print it with sizes."""
    digests = {path: digest(path) for path in files()}
    (RELEASE / "SHA256SUMS").write_text("".join(f"{found}  {path.name}\n" for path, found in digests.items()))
    for path, found in digests.items():
        print(f"{path.stat().st_size:>10,}  {found}  {path.name}")


def files() -> Iterator[Path]:
    return (path for path in sorted(RELEASE.iterdir()) if path.is_file() and path.name != "SHA256SUMS")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
