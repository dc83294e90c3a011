"""Installing a script's requirements for real, from wheels made here, without a network."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

import boto3
import pytest
from msgspec.structs import replace

from support.code_artifact import ARN, TOKEN, CodeArtifact
from support.processes import wait_until_ended
from support.running import START_SECONDS
from support.waiting import wait_until
from support.wheels import write_wheel
from tfs_proxy.run.programs import packages
from tfs_proxy.run.programs.packages import Install, install_packages, plan_install
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import RequirementsError
from tfs_proxy.values.layout import ModelLayout, Workspace


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelLayout:
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    layout = ModelLayout(tmp_path / "model")
    layout.code.mkdir(parents=True)
    layout.script.touch()
    return layout


def install(layout: ModelLayout, tmp_path: Path, *lines: str, pip: bool = True, index: str = "") -> Install:
    layout.requirements.write_text("".join(f"{line}\n" for line in lines))
    environ = {**os.environ, "TFS_PROXY_INDEX": index}
    settings = Settings.from_env(environ)
    with pytest.MonkeyPatch.context() as patch:
        if not pip:
            patch.setattr(importlib.util, "find_spec", lambda _: None)
            patch.setattr(shutil, "which", lambda _: str(Path(sys.executable).with_name("uv")))
        planned = plan_install(layout, Workspace(tmp_path / "run"), settings, environ)
    assert planned is not None
    asyncio.run(install_packages(planned))
    return planned


def seen_by_a_worker(installed: Install, code: str) -> str:
    """What the running interpreter prints with the overlay on its import path."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(installed.site_packages)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.mark.tensorflow
@pytest.mark.parametrize("pip", [True, False])
def test_tensorflow_of_another_name_is_tensorflow(layout: ModelLayout, tmp_path: Path, pip: bool) -> None:
    """What asks for it, a package of the script too, gets what is there, as tensorflow-cpu for example."""
    write_wheel(layout.wheels, "tinyone", "1.2", needs="tensorflow>=2.16")
    installed = install(layout, tmp_path, "tinyone", "tensorflow", pip=pip)
    assert not (installed.site_packages / "tensorflow").exists()
    code = "import importlib.metadata as m, tinyone; print(m.version('tensorflow'))"
    assert seen_by_a_worker(installed, code) == provided()[1]


@pytest.mark.tensorflow
@pytest.mark.parametrize("pip", [True, False])
def test_another_version_of_tensorflow_is_for_the_workers(
    layout: ModelLayout, tmp_path: Path, caplog: pytest.LogCaptureFixture, pip: bool
) -> None:
    """A pin is kept, and a warning names both versions."""
    write_wheel(layout.wheels, "tensorflow", "1.15.5")
    installed = install(layout, tmp_path, "tensorflow==1.15.5", pip=pip)
    assert seen_by_a_worker(installed, "import tensorflow as tf; print(tf.VERSION)") == "1.15.5"
    assert f"tensorflow 1.15.5 in the workers, in addition to {' '.join(provided())}" in caplog.text


def provided() -> tuple[str, str]:
    """The installed distribution that has TensorFlow, and its version."""
    (name,) = packages_distributions()["tensorflow"]
    return name.replace("_", "-"), version(name)


def test_what_runs_already_is_not_installed_again(layout: ModelLayout, tmp_path: Path) -> None:
    """What is there already, numpy here, is enough: it needs neither wheel nor network."""
    write_wheel(layout.wheels, "tinyone", "1.2", needs="numpy")
    installed = install(layout, tmp_path, "tinyone", f"numpy=={version('numpy')}")
    assert not (installed.site_packages / "numpy").exists()


def test_a_pin_that_differs_wins(
    layout: ModelLayout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The overlay's version is what the script imports, and the log says that it replaces one of ours."""
    write_wheel(layout.wheels, "requests", "99.0")
    installed = install(layout, tmp_path, "requests==99.0")
    assert seen_by_a_worker(installed, "import requests; print(requests.VERSION)") == "99.0"
    assert version("requests") != "99.0"
    assert "replaces requests" in caplog.text


def test_only_what_was_installed_is_taken_out(
    layout: ModelLayout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A RECORD may name any file: those outside of the overlay stay."""
    victim = tmp_path / "victim"
    victim.touch()
    outside = os.path.relpath(victim, tmp_path / "run/packages/lib/python3/site-packages")
    write_wheel(layout.wheels, "falcon", "2.0.0", claims=[str(victim), outside])
    installed = install(layout, tmp_path, "falcon==2.0.0")
    assert "falcon 2.0.0 of code/requirements.txt is taken out again" in caplog.text
    assert list(installed.site_packages.glob("falcon*")) == []
    assert victim.exists()


def test_modules_of_the_script_do_not_shadow_the_installer(layout: ModelLayout, tmp_path: Path) -> None:
    """A user's code/logging.py is no reason for pip to fail; relative paths start in code/."""
    (layout.code / "logging.py").write_text("raise RuntimeError('shadowed')\n")
    write_wheel(layout.code / "extra", "tinyone", "1.2")
    installed = install(layout, tmp_path, "./extra/tinyone-1.2-py3-none-any.whl")
    assert seen_by_a_worker(installed, "import tinyone; print(tinyone.VERSION)") == "1.2"


def test_a_failure_ends_with_the_installers_words(layout: ModelLayout, tmp_path: Path) -> None:
    """What can't be had is named, by the installer itself; the index is asked if the setting says so, and named so."""
    layout.wheels.mkdir()
    with pytest.raises(
        RequirementsError, match=r"(?s)TFS_PROXY_INDEX=also .*no-such-package-here"
    ) as offline:
        install(layout, tmp_path, "no-such-package-here==1")
    with pytest.raises(RequirementsError, match="no-such-package-here") as online:
        install(layout, tmp_path, "no-such-package-here==1", index="also")
    assert "TFS_PROXY_INDEX" not in str(online.value)
    assert "127.0.0.1:1" not in str(offline.value)


def test_a_package_s_set_up_sees_no_secrets(
    layout: ModelLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the installer runs has the filtered environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    seen = tmp_path / "seen"
    program = f"import os, pathlib; pathlib.Path({str(seen)!r}).write_text(' '.join(os.environ))"
    layout.requirements.write_text("never-asked-for\n")
    environ = dict(os.environ)
    planned = plan_install(layout, Workspace(tmp_path / "run"), Settings.from_env(environ), environ)
    assert planned is not None

    asyncio.run(install_packages(replace(planned, attempts=((sys.executable, "-c", program),))))

    assert "OPENAI_API_KEY" not in seen.read_text()
    assert "PIP_INDEX_URL" in seen.read_text()


def test_a_failure_names_variables_that_were_not_passed(
    layout: ModelLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private index's password in requirements.txt is the usual reason."""
    monkeypatch.setenv("INDEX_USER", "me")
    lines = (
        "--index-url http://${INDEX_USER}:${INDEX_KEY}@127.0.0.1:1/simple",
        "no-such-package-here ${PIP_RETRIES}",
    )
    with pytest.raises(RequirementsError) as failure:
        install(layout, tmp_path, *lines)

    assert "uses ${INDEX_USER}, ${INDEX_KEY}, which the installer did not get" in str(failure.value)
    assert "TFS_PROXY_INSTALL_ENVIRONMENT=INDEX_USER,INDEX_KEY." in str(failure.value)


def test_cancelling_kills_the_installer(layout: ModelLayout, tmp_path: Path) -> None:
    """A stop during the installation leaves no process behind."""
    marker = tmp_path / "pid"
    program = f"import os, time, pathlib; pathlib.Path({str(marker)!r}).write_text(str(os.getpid())); time.sleep(60)"
    overlay = tmp_path / "overlay"
    slow = Install(overlay, overlay, layout.code, ((sys.executable, "-c", program),), os.environ)

    async def start_and_cancel() -> None:
        task = asyncio.create_task(install_packages(slow))
        await asyncio.to_thread(
            wait_until, lambda: marker.exists() and marker.read_text(), START_SECONDS, "the installer runs"
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(start_and_cancel())
    wait_until_ended([int(marker.read_text())])


def test_a_silent_installer_is_said_to_go_on(
    layout: ModelLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Minutes of a download or a compiler do not look like a hang."""
    monkeypatch.setattr(packages, "QUIET_SECONDS", 0.2)
    overlay = tmp_path / "overlay"
    argv = (sys.executable, "-c", "import time; time.sleep(0.7); print('done')")
    with caplog.at_level("INFO"):
        asyncio.run(install_packages(Install(overlay, overlay, layout.code, (argv,), os.environ)))

    said = [line for line in caplog.messages if "still installing, without a new line" in line]
    assert len(said) > 1
    assert caplog.messages.index(said[-1]) < caplog.messages.index("requirements: done")


@pytest.fixture
def code_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodeArtifact]:
    with CodeArtifact(tmp_path / "index") as stub:
        threading.Thread(target=stub.serve_forever, daemon=True).start()
        for name, value in {**stub.variables, "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        yield stub
        stub.shutdown()


@pytest.mark.parametrize("pip", [True, False])
def test_packages_come_from_code_artifact(
    layout: ModelLayout,
    tmp_path: Path,
    code_artifact: CodeArtifact,
    caplog: pytest.LogCaptureFixture,
    pip: bool,
) -> None:
    """Its index counts, not PIP_INDEX_URL's; arguments, log, error and files that stay do not have the token.

    pip starts another pip for what a build needs. Passwords of the user's own are there, too.
    """
    caplog.set_level("DEBUG", "tfs_proxy")
    (tmp_path / ".netrc").write_text("machine packages.example")
    fails = "import os; raise OSError(open(os.environ['NETRC']).readline())"
    write_wheel(code_artifact.packages / "builder", "builder", "1.0", more={"builder.py": fails})
    write_wheel(code_artifact.packages / "tinyone", "tinyone", "1.2")
    project = layout.code / "pyproject.toml"
    project.write_text('[build-system]\nrequires = ["builder"]\nbuild-backend = "builder"\n')
    with pytest.raises(RequirementsError, match=r"OSError: machine packages\.example") as failure:
        install(layout, tmp_path, ".", pip=pip)
    installed = install(layout, tmp_path, "tinyone", pip=pip)

    assert seen_by_a_worker(installed, "import tinyone; print(tinyone.VERSION)") == "1.2"
    of_domain = "domain=ours&domain-owner=123456789012"
    assert code_artifact.asked[2:] == [
        f"/v1/authorization-token?{of_domain}",
        f"/v1/repository/endpoint?{of_domain}&repository=shared.pypi&format=pypi",
    ]
    assert code_artifact.shown == []
    kept = [file.read_text(errors="replace") for file in installed.overlay.rglob("*") if file.is_file()]
    assert not any(TOKEN in text for text in [caplog.text, str(failure.value), *kept])


AS_IT_IS = ("CA_REPOSITORY_ARN", ARN)


@pytest.mark.parametrize(
    ("refusal", "changed", "words"),
    [
        ("AccessDeniedException", AS_IT_IS, "AccessDeniedException.* with sts:GetServiceBearerToken"),
        ("ResourceNotFoundException", AS_IT_IS, "ResourceNotFoundException.*Check CA_REPOSITORY_ARN"),
        ("", ("AWS_ENDPOINT_URL_CODEARTIFACT", "http://127.0.0.1:1"), "Could not connect.*the network"),
        ("", ("AWS_ACCESS_KEY_ID", ""), "Unable to locate credentials"),
    ],
)
def test_why_code_artifact_is_no_index(
    layout: ModelLayout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code_artifact: CodeArtifact,
    refusal: str,
    changed: tuple[str, str],
    words: str,
) -> None:
    """AWS's words, and what to check; with wheels nobody is asked."""
    code_artifact.refusal = refusal
    monkeypatch.setenv(*changed)
    with pytest.raises(RequirementsError, match=f"^{ARN} can't be the package index .*{words}"):
        install(layout, tmp_path, "tinyone")
    write_wheel(layout.wheels, "tinyone", "1.2")
    install(layout, tmp_path, "tinyone")
