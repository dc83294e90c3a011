"""`scripts/build-image` with a docker that has no registry: what is missing is said before anything is built."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = """\
#!/bin/sh
echo "$@" >> "$DOCKER_CALLS"
case "$1 $2" in
  "image inspect") case " $DOCKER_HAS " in *" $3 "*) exit 0 ;; esac; exit 1 ;;
  "pull --quiet") echo "Using default tag"; echo "no route to the registry" >&2; exit 1 ;;
  "build "*) echo "as far as the build"; exit 1 ;;
esac
"""


def built(folder: Path, *words: str, has: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A run of the script with a docker that has these images only, and docker's commands."""
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    calls = folder / "calls"
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "DOCKER_CALLS": str(calls),
        "DOCKER_HAS": has,
    }
    command = [str(ROOT / "scripts" / "build-image"), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done, calls.read_text().splitlines()


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
    """The embedded image needs none but the base; then the build begins."""
    done, calls = built(tmp_path, name, has=has)

    assert "as far as the build" in done.stderr
    assert calls[-1].startswith("build ")
    assert not any(call.startswith("pull") for call in calls)
