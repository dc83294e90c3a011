"""README, CONTRIBUTING and the site's sources: short, with links that lead somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

import tfs_proxy

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def test_the_first_two_commands_do_all() -> None:
    """Who has a fresh machine types these, before anything is installed and without a model of their own."""
    assert re.match(r"[^$]*\$ make demo [^$]*\$ make test ", README.read_text())


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


def test_a_release_stands_where_the_project_says() -> None:
    """`[project.urls]` has its addresses: whoever repeats one has the whole of it, and of this version."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    images, chart, files = (urls[key].removeprefix("https://") for key in ("Images", "Chart", "Download"))
    version = tfs_proxy.__version__
    tag, wheel = f":v{version}-(cpu|gpu|embedded)(-arm64)?", f"tfs_proxy-{version}-py3-none-any.whl"
    known = rf"{images}({tag})?|{chart}(:{version})?|{files}(/download/v{version}/{wheel})?"
    texts = {path: path.read_text() for path in (README, *ROOT.glob("d[eo]*/**/*.[my][da]*"))}
    address = re.compile(r"ghcr\.io/[\w./:-]*\w|github\.com/[\w-]+/[\w-]+/releases[\w./-]*")

    said = {name for text in texts.values() for name in address.findall(text)}
    assert {name for name in said if not re.fullmatch(known, name)} == set()
    assert f"./{wheel}[embedded]" in texts[README]
    for path in ("README.md", "docs/start/install.md"):
        assert {chart, files} <= set(address.findall(texts[ROOT / path]))
    for path in ("chart/values.yaml", "kubernetes/deployment.yaml", "kserve/servingruntime.yaml"):
        assert images in texts[ROOT / "deploy" / path]
