"""The Dockerfiles, held by reading them: the two that can't be built everywhere must not drift apart."""

import difflib
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("Dockerfile.cpu", "Dockerfile.gpu")
EMBEDDED_STAGES = ("embedded-packages", "embedded")
GPU_ONLY = {
    'RUN container/install-packages "${SCRIPT_LIBRARIES}" gevent gpu otel scripts',
    "COPY container/check-cuda /usr/local/lib/tfs-proxy/",
    "RUN /usr/local/lib/tfs-proxy/check-cuda /usr/bin/tensorflow_model_server",
    'LABEL com.amazonaws.sagemaker.inference.cuda.verified_versions="12.9"',
    "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "ARG BASE_IMAGE=nvidia/cuda:12.9.1-cudnn-runtime-ubuntu24.04",
    "FROM tensorflow/serving:${TFS_VERSION}-gpu AS binary",
}
CPU_ONLY = {
    'RUN container/install-packages "${SCRIPT_LIBRARIES}" gevent otel scripts',
    "ARG BASE_IMAGE=debian:trixie-slim",
    "FROM tensorflow/serving:${TFS_VERSION} AS binary",
}


def instructions(name: str) -> list[str]:
    """One line per instruction, comments left out."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]


def stages(name: str) -> dict[str, list[str]]:
    """Instructions by stage; what stands above the first FROM is under the empty name."""
    found: dict[str, list[str]] = {"": []}
    for line in instructions(name):
        if line.startswith("FROM "):
            found[line.rpartition(" AS ")[2]] = []
        list(found.values())[-1].append(line)
    return found


def test_the_two_files_differ_in_base_binary_and_cuda_only() -> None:
    """Line by line, the embedded stages of the CPU's file left out."""
    cpu = [line for name, lines in stages(FILES[0]).items() if name not in EMBEDDED_STAGES for line in lines]
    gpu = [line for lines in stages(FILES[1]).values() for line in lines]
    changes = [line for line in difflib.ndiff(cpu, gpu) if line[:2] in {"- ", "+ "}]

    assert {line[2:] for line in changes if line.startswith("-")} == CPU_ONLY
    assert {line[2:] for line in changes if line.startswith("+")} == GPU_ONLY


def test_the_embedded_target_needs_no_other_image_than_the_base() -> None:
    """The classic builder runs every stage up to the target: none of them may come from elsewhere."""
    sources = {name: lines[0].split()[1] for name, lines in stages(FILES[0]).items() if name}
    names = list(sources)
    needed = names[: names.index("embedded") + 1]

    assert {sources[name] for name in needed} - set(names) == {"${BASE_IMAGE}"}


@pytest.mark.parametrize("name", FILES)
def test_the_classic_builder_can_build_them(name: str) -> None:
    """No syntax of BuildKit's own, and the official binary's stage is the last source."""
    text = (ROOT / name).read_text()

    assert "--mount" not in text
    assert "<<" not in text
    assert "syntax=" not in text
    assert list(stages(name))[-1] == "official"


@pytest.mark.parametrize("name", FILES)
def test_sagemaker_reads_what_the_image_can_do(name: str) -> None:
    """Its labels: a port of SageMaker's choice (pipelines), and many models behind one endpoint."""
    (label,) = [line for line in instructions(name) if line.startswith("LABEL org.opencontainers")]
    prefix = "com.amazonaws.sagemaker.capabilities."

    assert {word.removeprefix(prefix) for word in label.split() if word.startswith(prefix)} == {
        'accept-bind-to-port="true"',
        'multi-models="true"',
    }


@pytest.mark.parametrize("name", FILES)
def test_every_stage_has_a_title(name: str) -> None:
    """A comment right above FROM says what the stage is."""
    lines = (ROOT / name).read_text().splitlines()
    titles = [lines[number - 1] for number, line in enumerate(lines) if line.startswith("FROM ")]

    assert [title for title in titles if not title.startswith("# ")] == []


def test_hadolint_has_nothing_to_say() -> None:
    """The linter for Dockerfiles is clean at every level."""
    program = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    assert program is not None
    done = subprocess.run([program, *FILES], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("unlinked", "unknown", "said"),
    [
        ("", "", ""),
        ("libcuda.so.1", "", ""),
        ("", "libnvrtc.so.12", "libnvrtc.so.12 is missing"),
        ("libnccl.so.2", "", "is linked to libnccl.so.2"),
    ],
    ids=["all there", "the driver's, of the host", "one that is loaded", "one that is linked"],
)
def test_a_base_image_without_a_cuda_library_fails_the_build(
    tmp_path: Path, unlinked: str, unknown: str, said: str
) -> None:
    """The model server would crash, or run on the CPU without a word."""
    script = (ROOT / "container" / "check-cuda").read_text().partition("ldconfig -p")[2]
    libraries = [word.rstrip(";") for word in script.split() if word.startswith("lib") and ".so." in word]
    shown = "".join(
        f"\\t{library} (libc6,x86-64) => /usr/lib/{library}\\n" for library in libraries if library != unknown
    )
    linked = "\\tlibc.so.6 => /lib/libc.so.6 (0x00)\\n" + (
        f"\\t{unlinked} => not found\\n" if unlinked else ""
    )
    for name, text in (("ldconfig", shown), ("ldd", linked)):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '{text}'\n")
        (tmp_path / name).chmod(0o755)

    done = subprocess.run(
        [ROOT / "container" / "check-cuda", "/usr/bin/tensorflow_model_server"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(libraries) == 10
    assert done.returncode == (1 if said else 0)
    assert said in done.stderr
