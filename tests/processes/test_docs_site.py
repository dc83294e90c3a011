"""The documentation's site: built strictly, complete, and loading nothing from other hosts."""

import importlib.resources
import re
import shutil
import subprocess
import sysconfig
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = "assets/mermaid.min.js"
LOADING = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
OUTSIDE = re.compile(r"(?:https?:)?//")
NAMING_RELATIONS = {"canonical", "next", "prev"}
"""Links that say where a page stands; browsers do not follow them by themselves."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the site's sources, with something in the place of the diagram library."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("mermaid*"))
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "docs" / "assets").mkdir(exist_ok=True)
    (folder / "docs" / LIBRARY).write_text("// the library\n")
    return folder


def build(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site as `make docs` does."""
    program = shutil.which("zensical", path=sysconfig.get_path("scripts"))
    assert program is not None
    return subprocess.run(
        [program, "build", "--strict", "--clean"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(project: Path) -> Path:
    """The built site."""
    done = build(project)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / "build" / "site"


class Loaded(HTMLParser):
    """Addresses that a browser loads by itself when it shows a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag loads."""
        if dict(attrs).get("rel") not in NAMING_RELATIONS:
            self.addresses += [value or "" for name, value in attrs if (tag, name) in LOADING]


def test_every_page_is_built_and_can_be_searched(site: Path) -> None:
    """The index of the search names each page of the sources but those for who works on the project."""
    index = (site / "search.json").read_text()
    pages = {path.relative_to(ROOT / "docs").with_suffix(""): path for path in (ROOT / "docs").rglob("*.md")}

    for page, path in pages.items():
        folder = page.parent if page.name == "index" else page
        assert (site / folder / "index.html").exists()
        if str(folder) != ".":
            assert (f'"location":"{folder}/' in index) != path.read_text().startswith("---\nsearch:")


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    """Scripts, styles, fonts and pictures all come with the site."""
    pages = {path: Loaded(path.read_text()).addresses for path in site.rglob("*.html")}
    styles = [path.read_text() for path in site.rglob("*.css")]

    assert styles
    assert [one for addresses in pages.values() for one in addresses if OUTSIDE.match(one)] == []
    assert [
        one for text in styles for one in re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", text)
    ] == []


def test_pages_with_diagrams_bring_the_library(site: Path) -> None:
    """The theme fetches it from another host only if no script of the page has defined it."""
    drawn = [path for path in site.rglob("*.html") if 'class="mermaid"' in path.read_text()]

    assert len(drawn) >= 3
    for path in drawn:
        assert any(address.endswith(LIBRARY) for address in Loaded(path.read_text()).addresses)


def test_the_library_is_the_one_that_the_theme_is_written_for() -> None:
    """An upgrade of the theme may need another major version."""
    scripts = importlib.resources.files("zensical") / "templates" / "assets" / "javascripts"
    (bundle,) = [path.read_text() for path in Path(str(scripts)).glob("bundle.*.js")]
    wanted = re.findall(r"mermaid@(\d+)", bundle)
    brought = re.findall(r"^version=(\d+)\.", (ROOT / "scripts" / "vendor-mermaid").read_text(), re.MULTILINE)

    assert set(wanted) == set(brought)
