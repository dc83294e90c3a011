"""Installs the packages of code/requirements.txt, which the script can import, while the model loads.

They are installed into an overlay: a virtual environment of this run that also sees the running environment.
Packages that are installed already count; if a pin asks for another version, it is installed into the overlay
and imported from there. The running environment is never changed.
"""

import asyncio
import fnmatch
import importlib.util
import logging
import os
import re
import shutil
import signal
import site
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tfs_proxy.run.host.processes import before_exec
from tfs_proxy.run.programs.code_artifact import index_environment
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import RequirementsError, StartTimeout
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.values.names import printable

TAIL_LINES = 15
QUIET_SECONDS = 30.0
"""Longest silence of an installer in the log: downloads and compilers may take many minutes."""

MAX_LINE_BYTES = 256 * 1024
WITH_GROUP = ("/bin/sh", "-c", 'trap "kill -KILL 0" TERM; "$@" & wait $!', "install")
"""The parent of an installer, which ends with all that it has started once Linux signals our end."""

BASE_PTH = "running-environment.pth"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
LET_THROUGH = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("XDG_*", "PIP_*", "UV_*"),
    *("PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONUTF8"),
    *(*_PROXIES, *map(str.lower, _PROXIES)),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("CC", "CXX", "CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "LIBRARY_PATH", "PKG_CONFIG_PATH"),
    *("MAKEFLAGS", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CARGO_HOME", "RUSTUP_HOME"),
)
"""Names, some with ``*``, of the variables that an installer gets: packages' set-up code sees no others."""

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")

_log = logging.getLogger(__name__)


class Install(Struct, frozen=True):
    """An installation of the packages of requirements.txt."""

    overlay: Path
    """Folder of the virtual environment."""

    site_packages: Path
    """Folder in it for the workers' import path."""

    folder: Path
    """Folder of requirements.txt, from which relative paths in it start."""

    attempts: Sequence[tuple[str, ...]]
    """Commands, the first of which that succeeds is enough."""

    env: Mapping[str, str]
    """Environment of these commands."""

    remedy: str = ""
    """Phrase on one more thing to do if no command succeeds; "" without one."""

    unset: tuple[str, ...] = ()
    """Variables that requirements.txt uses and ``env`` lacks."""

    limit_seconds: float | None = None
    """Time for all commands; None for no limit."""

    code_artifact: str | None = None
    """Repository of CodeArtifact whose index is asked; None for the one that ``env`` names."""


def plan_install(
    layout: ModelLayout,
    workspace: Workspace,
    settings: Settings,
    environ: Mapping[str, str],
) -> Install | None:
    """Decides what to install; None without a script or a requirements.txt, or if there is a ``code/lib``.

    With ``code/wheels`` the package index is not asked, except after a failure if the settings say so
    (AWS's container knows no such folder). Raises RequirementsError if neither pip nor uv is installed.
    """
    if not brings_packages(layout):
        return None
    overlay = workspace.packages
    python = str(overlay / "bin" / "python")
    begin: tuple[str, ...]
    if importlib.util.find_spec("pip") is not None:
        # -P: modules of the user's code/ must not shadow pip's own
        quiet = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
        begin = (sys.executable, "-P", "-m", "pip", "--python", python, "install", *quiet)
    elif uv := shutil.which("uv"):
        begin = (uv, "pip", "install", "--no-progress", "--python", python)
    else:
        raise RequirementsError(
            "code/requirements.txt can't be installed: neither pip nor uv is installed for "
            f"{sys.executable}. Install one of them, or vendor the packages in code/lib."
        )
    end = ("--requirement", str(layout.requirements.absolute()))
    links = ("--find-links", str(layout.wheels.absolute()))
    attempts = [(*begin, *end)]
    remedy = ""
    if layout.wheels.is_dir():
        attempts = [(*begin, "--no-index", *links, *end)]
        if settings.index == "also":
            attempts.append((*begin, *links, *end))
        else:
            remedy = "set TFS_PROXY_INDEX=also to have the package index asked for them, "
    patterns = (*LET_THROUGH, *settings.install_environment)
    passed = {name for pattern in patterns for name in fnmatch.filter(environ, pattern)}
    env = {name: environ[name] for name in passed}
    used = dict.fromkeys(_VARIABLE.findall(layout.requirements.read_text(errors="replace")))
    unset = tuple(name for name in used if name not in env)
    base = {"base": str(overlay), "platbase": str(overlay)}
    site_packages = sysconfig.get_path("purelib", "venv", vars=base)
    folder = layout.code.absolute()
    return Install(
        overlay,
        Path(site_packages),
        folder,
        attempts,
        env,
        remedy,
        unset,
        settings.install_seconds,
        settings.code_artifact,
    )


class Installed(Struct, frozen=True):
    """Packages in ``folder``, by the ``requirements`` of ``code``; ``replaced`` are some of our own."""

    folder: Path
    code: Path
    requirements: bytes
    replaced: tuple[str, ...]


async def provide(install: Install, before: Installed | None) -> Installed:
    """Installs the packages, or links those of ``before`` if the same was asked for."""
    file = install.folder / "requirements.txt"
    requirements = file.read_bytes()
    if before is not None and (before.code, before.requirements) == (install.folder, requirements):
        install.overlay.symlink_to(before.folder)
        return before
    _log.info("installing %s", file.name)
    return Installed(install.overlay, install.folder, requirements, await install_packages(install))


def is_noexec(folder: Path) -> bool:
    """True if ``folder`` is on a file system that is mounted noexec, as Docker's tmpfs is."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def noexec_warning(folders: Iterable[Path]) -> str | None:
    """A warning if ``folders`` hold native modules that can't be loaded because of the mount."""
    for folder in folders:
        if folder.is_dir() and is_noexec(folder):
            module = next((path for pattern in ("*.so", "*.so.*") for path in folder.rglob(pattern)), None)
            if module is not None:
                return (
                    f"{folder} is mounted noexec, so native modules there such as {printable(module.name)} "
                    "can't be loaded: mount it with exec (docker run --tmpfs /tmp:exec), or set "
                    "TFS_PROXY_HOME to a volume"
                )
    return None


def brings_packages(layout: ModelLayout) -> bool:
    """True if anything must be installed before the script can be imported."""
    if not layout.script.is_file() or not layout.requirements.is_file() or layout.lib.is_dir():
        return False
    with layout.requirements.open("rb") as lines:
        return any(line.strip() and not line.lstrip().startswith(b"#") for line in lines)


async def install_packages(install: Install) -> tuple[str, ...]:
    """Creates the overlay and installs into it; the running environment is not changed.

    Returns names and versions of what replaces packages of this program. Raises
    RequirementsError with the end of the installer's output if no attempt succeeds, StartTimeout at the
    limit. If cancelled, it kills the installer first.
    """
    # Imported here, since few scripts have requirements: it takes every supervisor 2.7 MB, and 12 ms.
    from tfs_proxy.run.programs.own_packages import keep_own

    output: Sequence[str] = ()
    netrc = install.overlay / "netrc"
    try:
        async with asyncio.timeout(install.limit_seconds):
            provided = await asyncio.to_thread(prepare, install)
            for number, argv in enumerate(install.attempts, start=1):
                env = install.env
                if install.code_artifact is not None and "--no-index" not in argv:
                    env = await asyncio.to_thread(index_environment, install.code_artifact, env, netrc)
                status, output = await _attempt(argv, install.folder, env)
                if status == 0:
                    return await asyncio.to_thread(keep_own, install.overlay, install.site_packages, provided)
                if number < len(install.attempts):
                    _log.warning(
                        "code/wheels lacks some of what requirements.txt asks for: the package index is used "
                        "too"
                    )
    except TimeoutError:
        raise StartTimeout(
            f"code/requirements.txt is not installed within TFS_PROXY_INSTALL_SECONDS="
            f"{install.limit_seconds:g}; the log has the installer's last lines. Allow it more time, or put "
            "the packages into code/wheels or code/lib."
        ) from None
    finally:
        netrc.unlink(missing_ok=True)
    unset = ""
    if install.unset:
        unset = (
            f" It uses {', '.join(f'${{{name}}}' for name in install.unset)}, which the installer did not "
            f"get. Set what is missing, and TFS_PROXY_INSTALL_ENVIRONMENT={','.join(install.unset)}."
        )
    raise RequirementsError(
        f"code/requirements.txt can't be installed; put the missing wheels into code/wheels, {install.remedy}"
        f"vendor the packages in code/lib, or correct the file.{unset} The installer's last lines:\n"
        + "\n".join(output)
    )


def prepare(install: Install) -> str:
    """Creates the overlay: an environment without pip, with the running one's packages behind its own.

    Returns the distribution that has TensorFlow here, if it has another name, such as ``tensorflow-cpu
    2.20.0``; else "".
    """
    import venv
    from importlib import metadata

    from tfs_proxy.run.programs.own_packages import TENSORFLOW, project_name

    venv.EnvBuilder(symlinks=True, with_pip=False).create(install.overlay)
    of_user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders = filter(os.path.isdir, [*of_user, *site.getsitepackages()])
    (install.site_packages / BASE_PTH).write_text("".join(f"{folder}\n" for folder in folders))
    # That distribution gets TensorFlow's name, too, so that nothing installs a second one.
    name = next(iter(metadata.packages_distributions().get(TENSORFLOW, ())), TENSORFLOW)
    if project_name(name) == TENSORFLOW:
        return ""
    version = metadata.version(name)
    info = install.site_packages / f"{TENSORFLOW}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {TENSORFLOW}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return f"{project_name(name)} {version}"


async def _attempt(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[int, Sequence[str]]:
    """Runs one argv, its output into the log; returns its exit status and its last lines."""
    process = await asyncio.create_subprocess_exec(
        *WITH_GROUP,
        *argv,
        cwd=folder,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=MAX_LINE_BYTES,
        start_new_session=True,
        preexec_fn=before_exec(signal.SIGTERM),
    )
    tail = deque[str](maxlen=TAIL_LINES)
    asked_at = time.monotonic()
    try:
        while process.stdout is not None:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    raw = await process.stdout.readline()
            except TimeoutError:
                waited_seconds = time.monotonic() - asked_at
                _log.info("requirements: still installing, without a new line for %.0f s", waited_seconds)
                continue
            if not raw:
                break
            line = raw.decode(errors="replace").rstrip()
            asked_at = time.monotonic()
            _log.info("requirements: %s", line)
            tail.append(line)
        return await process.wait(), tail
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
