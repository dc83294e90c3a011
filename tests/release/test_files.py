"""The files of a release: they fit together, and the documentation has a menu of versions."""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from support.browser import CHROMIUM, DRIVER, browsing
from support.http_servers import listening


@pytest.fixture
def site(release: Path) -> Iterator[str]:
    """The address of the documentation's root."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(release / "docs"))
    with listening(handler) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def test_the_checksums_are_those_of_all_files(release: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=release, check=True)
    named = {line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in release.iterdir() if path.is_file()} - {"SHA256SUMS"}


def test_the_provenance_is_a_statement_about_the_files(release: Path) -> None:
    """Its digests are of the files that lie beside it; it names the commit and the lock."""
    statement = json.loads((release / "provenance.intoto.json").read_text())
    for subject in statement["subject"]:
        content = (release / subject["name"]).read_bytes()
        assert subject["digest"]["sha256"] == hashlib.sha256(content).hexdigest()
    source, lock = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["uri"].endswith(source["digest"]["gitCommit"])
    assert lock["name"] == "requirements.lock"


def test_the_sbom_names_what_the_wheel_runs_with_and_not_what_tests_it(release: Path) -> None:
    bill = json.loads((release / "sbom.cdx.json").read_text())
    names = {component["name"] for component in bill["components"]}
    assert {"gunicorn", "uvicorn", "tensorflow-cpu", "opentelemetry-sdk"} <= names
    assert not names & {"pytest", "mypy", "zensical"}
    assert (release / f"tfs_proxy-{bill['metadata']['component']['version']}.tar.gz").exists()


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and its driver")
def test_the_root_leads_to_the_newest_version_whose_pages_have_the_menu(release: Path, site: str) -> None:
    newest = json.loads((release / "docs" / "versions.json").read_text())[0]["version"]
    with browsing() as browser:
        browser.driver.get(site)
        browser.wait(lambda: browser.find(".md-version"), "the menu of versions is there")
        assert browser.driver.current_url == f"{site}/{newest}/"
        assert newest in browser.element(".md-version").text
        assert browser.element(".md-version a").get_attribute("href") == f"{site}/{newest}/"
