"""README, CONTRIBUTING and the site's sources: short, with links that lead somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

import tfs_proxy

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LONGEST_README = 110


def test_the_readme_is_read_in_five_minutes() -> None:
    """Everything longer belongs into docs/."""
    assert len(README.read_text().splitlines()) <= LONGEST_README


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", "code_examples/README.md"]
)
def test_links_within_the_repository_lead_somewhere(name: str) -> None:
    """The site's own links are checked when it is built."""
    path = ROOT / name
    links = [link for link in re.findall(r"\]\(([^)#]+)", path.read_text()) if "://" not in link]

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    """Nobody finds a page that nothing leads to; CONTRIBUTING leads to those apart from the navigation."""
    listed = re.findall(r'"([\w./-]+\.md)"', (ROOT / "zensical.toml").read_text())
    pages = {str(path.relative_to(ROOT / "docs")): path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    apart = {name for name, text in pages.items() if text.startswith("---\nsearch:\n  exclude: true\n---\n")}

    assert sorted(listed) == sorted(pages.keys() - apart)
    assert [name for name in apart if f"docs/{name}" not in (ROOT / "CONTRIBUTING.md").read_text()] == []


def test_the_readme_installs_this_release() -> None:
    assert f"./tfs_proxy-{tfs_proxy.__version__}-py3-none-any.whl[embedded]" in README.read_text()


def test_a_release_stands_where_the_project_says() -> None:
    """`[project.urls]` has its addresses: who repeats one repeats all of it, with this version or none."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    names = [url.removeprefix("https://") for url in urls.values()]
    images, chart, wheels = (urls[key].removeprefix("https://") for key in ("Images", "Chart", "Download"))
    ours = "|".join(re.escape("/".join(name.split("/")[:2])) for name in names)
    paths = [README, *(path for room in ("docs", "deploy", ".github") for path in (ROOT / room).rglob("*.*"))]
    texts = {path: path.read_text() for path in paths if path.suffix in {".md", ".yaml", ".yml", ".txt"}}
    said = [found for text in texts.values() for found in re.findall(rf"(?:{ours})[\w./:-]*[\w/]", text)]
    tag = rf"{re.escape(images)}:v{re.escape(tfs_proxy.__version__)}-(cpu|gpu|embedded)(-arm64)?"

    assert [
        name
        for name in said
        if not re.match("|".join(rf"{re.escape(each)}(?![\w-])" for each in names), name)
    ] == []
    assert [name for name in said if name.startswith(f"{images}:") and not re.fullmatch(tag, name)] == []
    for path in (README, ROOT / "docs" / "start" / "install.md"):
        assert [
            name for name in (f"{images}:", f"oci://{chart}", f"https://{wheels}") if name not in texts[path]
        ] == []
