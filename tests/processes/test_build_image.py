"""`scripts/build-image` with a docker that has no registry: what is missing is said before anything is built."""

import os
import re
import select
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKED = dict(
    line.split()
    for line in (ROOT / "container" / "base-images.lock").read_text().splitlines()
    if line[0] != "#"
)
PINNED = f"debian@{LOCKED['debian:trixie-slim']}"
DOCKER = """\
#!/bin/sh
echo "$@" >> "$DOCKER_CALLS"
case "$1 $2" in
  "image inspect") case " $DOCKER_HAS " in *" $3 "*) exit 0 ;; esac; exit 1 ;;
  "pull --quiet") echo "Using default tag"; echo "no route to the registry" >&2; exit 1 ;;
  "build "*) echo "Step 1/2 : FROM base"; echo "as far as the build"
    while [ -e "$DOCKER_CALLS.wait" ]; do sleep 0.05; done
    exit 1 ;;
esac
"""


def called(folder: Path, *words: str, has: str) -> subprocess.Popen[str]:
    """The script, with a docker that has these images only."""
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "DOCKER_CALLS": str(folder / "calls"),
        "DOCKER_HAS": has,
    }
    command = [str(ROOT / "scripts" / "build-image"), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def built(folder: Path, *words: str, has: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A run of the script to its end, and docker's commands."""
    with called(folder, *words, has=has) as running:
        said = running.communicate()
    done = subprocess.CompletedProcess(words, running.returncode, *said)
    return done, (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("words", "has", "missing"),
    [
        (["cpu"], "debian:trixie-slim", "tensorflow/serving:2.20.0"),
        (["cpu"], "tensorflow/serving:2.20.0", "debian:trixie-slim"),
        (["cpu", "--build-arg", "TFS_VERSION=2.19.1"], "debian:trixie-slim", "tensorflow/serving:2.19.1"),
        (["gpu", "--build-arg=BASE_IMAGE=cuda:1"], "cuda:1", "tensorflow/serving:2.20.0-gpu"),
    ],
)
def test_a_missing_image_ends_it_before_anything_is_built(
    tmp_path: Path, words: list[str], has: str, missing: str
) -> None:
    """The sentence names the image, docker's words and the image that needs none."""
    done, calls = built(tmp_path, *words, has=has)

    assert done.returncode == 1
    assert f"needs the image {missing}, which is not here and can't be pulled" in done.stderr
    assert "no route to the registry" in done.stderr
    assert "make image-embedded" in done.stderr
    assert calls[-1] == f"pull --quiet {missing}"


@pytest.mark.parametrize(
    ("name", "has"),
    [("cpu", "debian:trixie-slim tensorflow/serving:2.20.0"), ("embedded", "debian:trixie-slim")],
)
def test_what_is_there_is_not_pulled(tmp_path: Path, name: str, has: str) -> None:
    """The embedded image needs none but the base; without a registry, the tag that is here will do, and that is said.

    Steps are printed as they come.
    """
    done, calls = built(tmp_path, name, has=has)

    assert (
        f"{PINNED} (container/base-images.lock) can't be pulled: building from the tag debian" in done.stderr
    )

    assert done.stdout == "Step 1/2 : FROM base\n"
    assert "as far as the build" in done.stderr
    assert calls[-1].startswith("build ")
    assert [call for call in calls if call.startswith("pull")] == [f"pull --quiet {PINNED}"]
    assert "BASE_IMAGE" not in calls[-1]


def test_the_base_is_the_one_of_the_lock(tmp_path: Path) -> None:
    """By its digest, where it can be had; an argument names another one."""
    _, calls = built(tmp_path, "embedded", has=PINNED)
    assert f"--build-arg BASE_IMAGE={PINNED} " in calls[-1]

    done, calls = built(tmp_path, "embedded", "--build-arg", "BASE_IMAGE=mine:1", has=f"mine:1 {PINNED}")
    assert "BASE_IMAGE=mine:1" in calls[-1]
    assert PINNED not in calls[-1]
    assert "can't be pulled" not in done.stderr


def test_labels_say_what_the_image_was_made_of_and_when(tmp_path: Path) -> None:
    """Version, commit, time and base image, under OCI's names."""
    _, calls = built(tmp_path, "embedded", has=PINNED)
    labels = dict(re.findall(r"--label org\.opencontainers\.image\.(\S+?)=(\S+)", calls[-1]))

    assert {"version", "revision", "created", "base.name"} <= set(labels)
    assert labels["base.name"] == "debian:trixie-slim"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["created"])


def test_a_step_is_shown_while_it_runs(tmp_path: Path) -> None:
    """Also where awk is mawk, which reads a pipe in pieces of 4 KB."""
    waits = tmp_path / "calls.wait"
    waits.touch()
    with called(tmp_path, "embedded", has=PINNED) as running:
        assert running.stdout is not None
        is_shown, _, _ = select.select([running.stdout], [], [], 20)
        waits.unlink()
        assert running.communicate()[0] == "Step 1/2 : FROM base\n"

    assert is_shown


@pytest.mark.parametrize("dockerfile", ["Dockerfile.cpu", "Dockerfile.gpu", "container/Dockerfile.embedded"])
def test_the_lock_has_the_base_of_each_dockerfile(dockerfile: str) -> None:
    """A new tag needs its digest."""
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)$", (ROOT / dockerfile).read_text(), re.MULTILINE)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", LOCKED[base])
