"""SBOMs of images fit CycloneDX's schema: of made-up packages here, of a real image in tests/container."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.judges import ROOT, judge
from support.loading import load_module

DEBIAN = {"ID": "debian", "VERSION_ID": "13"}
contents = load_module(ROOT / "container" / "list-contents")


def bill(licences: list[str]) -> Any:
    """The SBOM of a package with such licences, listed twice, and one that has a hash and nothing else."""
    first = contents.component("openssl", "3.5.1", "pkg:deb/debian/openssl@3.5.1", licences, None, {"a": "b"})
    second = contents.component("h11", "0.16.0", "pkg:pypi/h11@0.16.0", [], "0" * 64, {})
    return contents.bill_of([first, second, first], DEBIAN)


@pytest.mark.parametrize(
    ("licences", "said"),
    [
        (["MIT"], [{"license": {"id": "MIT"}}]),
        (["GPL-2+", "Expat"], [{"license": {"id": "GPL-2.0-or-later"}}, {"license": {"id": "MIT"}}]),
        (["Apache-2.0 or MIT"], [{"expression": "Apache-2.0 OR MIT"}]),
        (
            ["Apache-2.0 OR MIT", "Vim"],
            [{"license": {"name": "Apache-2.0 OR MIT"}}, {"license": {"id": "Vim"}}],
        ),
        (
            ["public-domain", "LGPL-2.1"],
            [{"license": {"name": "public-domain"}}, {"license": {"id": "LGPL-2.1-only"}}],
        ),
        (["BSD-3-clause or GPL-2"], [{"expression": "BSD-3-Clause OR GPL-2.0-only"}]),
        (["GPL-2+ or Ours"], [{"license": {"name": "GPL-2+ or Ours"}}]),
        (["LicenseRef-Ours"], [{"license": {"name": "LicenseRef-Ours"}}]),
        ([], None),
    ],
)
def test_licences_have_spdx_ids_that_the_schema_knows(
    tmp_path: Path, licences: list[str], said: object
) -> None:
    path = tmp_path / "sbom.cdx.json"
    path.write_text(json.dumps(bill(licences)))

    system, package, _ = json.loads(path.read_text())["components"]
    assert package.get("licenses") == said
    assert (system["type"], system["name"], system["version"]) == ("operating-system", "debian", "13")
    assert judge("sbom").saw("sbom_valid", path) == {"wrong": None}


def test_the_same_packages_are_the_same_bill_and_others_another() -> None:
    assert bill(["MIT"])["serialNumber"] == bill(["MIT"])["serialNumber"] != bill(["ISC"])["serialNumber"]
