"""The Dockerfiles, held by reading them: those that can't be built everywhere must not drift apart."""

import difflib
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tfs_proxy.settings.rows import IMAGE_VALUES

ROOT = Path(__file__).parents[2]
CPU, GPU, EMBEDDED = FILES = ("Dockerfile.cpu", "Dockerfile.gpu", "container/Dockerfile.embedded")
SHARED_STAGES = ("system", "packages", "project", "serving")
GPU_ONLY = {
    'RUN container/install-packages "${SCRIPT_LIBRARIES}" gevent gpu otel scripts',
    "COPY container/check-cuda container/with-cuda-compat /usr/local/lib/tfs-proxy/",
    'ENTRYPOINT ["/usr/local/lib/tfs-proxy/with-cuda-compat", "/opt/tfs-proxy/bin/tfs-proxy", "container"]',
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
    """Line by line."""
    cpu, gpu = ([line for lines in stages(name).values() for line in lines] for name in (CPU, GPU))
    changes = [line for line in difflib.ndiff(cpu, gpu) if line[:2] in {"- ", "+ "}]

    assert {line[2:] for line in changes if line.startswith("-")} == CPU_ONLY
    assert {line[2:] for line in changes if line.startswith("+")} == GPU_ONLY


@pytest.mark.parametrize("name", FILES)
def test_images_give_the_settings_their_own_values(name: str) -> None:
    """They hold, too, where Kubernetes has put a Service's variable in their place."""
    (line,) = [line for line in stages(name)["serving"] if line.startswith("ENV ")]
    values = dict(word.split("=", 1) for word in line.split()[1:])
    assert {name: value for name, value in values.items() if name.startswith("TFS_PROXY_")} == IMAGE_VALUES


def test_the_embedded_image_is_the_cpus_with_another_model_server() -> None:
    """The stages of both are the same, and those of its own come from no other image."""
    embedded, cpu = stages(EMBEDDED), stages(CPU)
    sources = {lines[0].split()[1] for name, lines in embedded.items() if name}

    assert [embedded[name] for name in SHARED_STAGES] == [cpu[name] for name in SHARED_STAGES]
    assert sources - set(embedded) == {"${BASE_IMAGE}"}


@pytest.mark.parametrize("name", FILES)
def test_no_stage_is_built_in_vain(name: str) -> None:
    """The classic builder runs every stage above its target: the last one needs all of them."""
    built = stages(name)
    needed, more = set[str](), {list(built)[-1]}
    while more:
        needed |= more
        words = " ".join(line.replace("--from=", "") for stage in more for line in built[stage]).split()
        more = set(words) & set(built) - needed

    assert needed == set(built) - {""}


@pytest.mark.parametrize("name", FILES)
def test_the_classic_builder_can_build_them(name: str) -> None:
    """No syntax of BuildKit's own."""
    text = (ROOT / name).read_text()

    assert "--mount" not in text
    assert "<<" not in text
    assert "syntax=" not in text


@pytest.mark.parametrize("name", FILES)
def test_sagemaker_reads_what_the_image_can_do(name: str) -> None:
    """Its labels: a port of SageMaker's choice (pipelines), and many models behind one endpoint."""
    (label,) = [line for line in instructions(name) if line.startswith("LABEL org.opencontainers")]
    prefix = "com.amazonaws.sagemaker.capabilities."

    assert {word.removeprefix(prefix) for word in label.split() if word.startswith(prefix)} == {
        'accept-bind-to-port="true"',
        'multi-models="true"',
    }


def test_hadolint_has_nothing_to_say() -> None:
    """The linter for Dockerfiles is clean at every level."""
    program = f"{sysconfig.get_path('scripts')}/hadolint"
    done = subprocess.run([program, *FILES], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("unlinked", "unknown", "said"),
    [
        pytest.param("", "", "", id="all there"),
        pytest.param("libcuda.so.1", "", "", id="the driver's, of the host"),
        pytest.param("", "libnvrtc.so.12", "libnvrtc.so.12 is missing", id="one that is loaded"),
        pytest.param("", "libcudnn_ops.so.9", "libcudnn_ops.so.9 is missing", id="a part of cuDNN"),
        pytest.param("libnccl.so.2", "", "is linked to libnccl.so.2", id="one that is linked"),
    ],
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

    assert len(libraries) == 18
    assert done.returncode == (1 if said else 0)
    assert said in done.stderr


@pytest.fixture(scope="module")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A libcuda whose cuInit answers as CUINIT says, and crashes without it."""
    folder = tmp_path_factory.mktemp("driver")
    source = '#include <stdlib.h>\nint cuInit(unsigned flags) { return atoi(getenv("CUINIT")) + flags; }\n'
    (folder / "cuda.c").write_text(source)
    library = folder / "libcuda.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "cuda.c"], check=True)
    return library


OLDER, SAME, NEWER = ("575.57.08", "550.163.01"), ("575.57.08", "575.57.08"), ("575.57.08", "580.9.0")
CUDA_COMPAT = {
    "an older driver": (OLDER, "CUINIT=0", True, "older than CUDA's compatibility libraries (575.57.08): "),
    "an older driver without a card": (OLDER, "CUINIT=100", True, "these are used"),
    "a card without support": (OLDER, "CUINIT=804", False, "(cuInit answers 804): it is used alone"),
    "a driver that does not fit": (OLDER, "CUINIT=803", False, "(cuInit answers 803): it is used alone"),
    "a library that crashes": (OLDER, "", False, "(cuInit answers nothing): it is used alone"),
    "the same": (SAME, "", False, ""),
    "a newer driver": (NEWER, "", False, ""),
    "no driver": (("575.57.08", None), "", False, ""),
    "no compatibility libraries": ((None, "550.163.01"), "", False, ""),
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
@pytest.mark.parametrize(("versions", "env", "used", "said"), CUDA_COMPAT.values(), ids=CUDA_COMPAT)
def test_cudas_compatibility_libraries_come_before_an_older_driver_that_takes_them(
    tmp_path: Path,
    fake_driver: Path,
    versions: tuple[str | None, str | None],
    env: str,
    used: bool,
    said: str,
) -> None:
    """By the names of file and kernel module, and by what cuInit answers in a child process; then the program runs."""
    library, driver = versions
    compat, version, script = tmp_path / "compat", tmp_path / "version", tmp_path / "with-cuda-compat"
    compat.mkdir()
    if library:
        shutil.copy(fake_driver, compat / f"libcuda.so.{library}")
        (compat / "libcuda.so.1").symlink_to(f"libcuda.so.{library}")
    if driver:
        version.write_text(
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build\n"
        )
    text = (ROOT / "container" / "with-cuda-compat").read_text()
    text = text.replace("/usr/local/cuda/compat", str(compat)).replace(
        "/proc/driver/nvidia/version", str(version)
    )
    script.write_text(text)

    done = subprocess.run(
        ["sh", script, "sh", "-c", "echo $LD_LIBRARY_PATH"],
        env={
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": "/own",
            **dict(word.split("=") for word in env.split()),
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == (f"{compat}:/own\n" if used else "/own\n")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == bool(said)
