"""The options of the command line or of pytest -> a target and its `Judging`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from msgspec import Struct, field

from tfs_proxy.model.extract import ExtractLimits, extract
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.conform.judging import Judging, JudgingOptions
from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection
from tfs_proxy.tools.conform.requests_file import KnownRequests, read_requests_file
from tfs_proxy.tools.conform.target import Capability, ConformTarget, RunningContainer, StartOrder
from tfs_proxy.tools.conform.target_command import CommandTarget
from tfs_proxy.tools.conform.target_image import ImageTarget
from tfs_proxy.values.errors import SettingsError

DEFAULT_PORT = 8080
PORTS = 1 << 16
START_SECONDS = 240.0
"""The start-up window of an endpoint: docs/reference/sagemaker.md, Ping."""


class Wanted(Struct, frozen=True):
    """One of ``url``, ``image`` and ``command``, and facts about the container."""

    url: str | None = None
    image: str | None = None
    command: str | None = None
    model: Path | None = None
    requests: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = DEFAULT_PORT
    docker_options: Sequence[str] = ()
    capabilities: frozenset[Capability] = frozenset()
    start_seconds: float = START_SECONDS


@contextmanager
def judging_of(wanted: Wanted, environ: Mapping[str, str], limits: ExtractLimits) -> Iterator[Judging]:
    """Yields what checks need, with an archive of a model unpacked as SageMaker does.

    Commands inherit ``environ`` and get the variables asked for; containers get only those.
    Raises SettingsError and ArchiveError.
    """
    known = read_requests_file(wanted.requests) if wanted.requests else KnownRequests()
    with TemporaryDirectory(prefix="tfs-proxy-conform-") as folder:
        model = _unpacked(wanted.model, Path(folder), limits) if wanted.model else None
        options = JudgingOptions(model, wanted.capabilities, wanted.start_seconds)
        judging = Judging(_target(wanted, model, environ), known, options)
        try:
            yield judging
        finally:
            judging.close()


def _target(wanted: Wanted, model: Path | None, environ: Mapping[str, str]) -> ConformTarget:
    if [wanted.url, wanted.image, wanted.command].count(None) != 2:  # noqa: PLR2004 - of three
        raise SettingsError("conform takes one of URL, --image IMAGE and --command COMMAND.")
    if wanted.docker_options and wanted.image is None:
        raise SettingsError("--docker-option is for --image alone.")
    if not 0 < wanted.port < PORTS:
        raise SettingsError(f"--port {wanted.port} is not a port: it must be from 1 to {PORTS - 1}.")
    if wanted.image == "":
        raise SettingsError("--image is empty.")
    if wanted.image:
        return ImageTarget(wanted.image, model, wanted.env, wanted.docker_options)
    if wanted.command is not None:
        return CommandTarget(wanted.command, model, {**environ, **wanted.env}, wanted.port)
    target = AddressTarget(wanted.url or "")
    target.refuse_unreachable()
    return target


def _unpacked(model: Path, folder: Path, limits: ExtractLimits) -> Path:
    if model.is_dir():
        return model.resolve()
    extract(model, folder / "model", limits)
    return folder / "model"


def variables(assignments: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping. Raises SettingsError."""
    pairs = [assignment.partition("=") for assignment in assignments]
    for assignment, (name, equals, _) in zip(assignments, pairs, strict=True):
        if not (name and equals):
            raise SettingsError(f"--env {assignment} can't be used: it must be NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def extract_limits(settings: Settings) -> ExtractLimits:
    return ExtractLimits(settings.max_archive_bytes, settings.max_archive_members, settings.max_archive_ratio)


HTTP_PORT = 80


class AddressTarget:
    capabilities: frozenset[Capability] = frozenset()
    can_start = False

    def __init__(self, url: str) -> None:
        """Raises SettingsError if ``url`` is not an HTTP address without a path."""
        self.name = url
        try:
            parts = urlsplit(url)
            self.address = (parts.hostname or "", parts.port or HTTP_PORT)
        except ValueError:
            raise SettingsError(f"{url} is not an address: it must be http://HOST:PORT.") from None
        if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"} or parts.query:
            raise SettingsError(f"{url} can't be judged: it must be http://HOST:PORT, without a path.")

    def refuse_unreachable(self) -> None:
        """Raises SettingsError if nothing listens there."""
        try:
            RawConnection(self.address).close()
        except NoReply as error:
            raise SettingsError(f"nothing listens at {self.name}: {error}.") from None

    @contextmanager
    def started(self, order: StartOrder) -> Iterator[RunningContainer]:  # noqa: ARG002 - nothing is started
        yield _Elsewhere(self.address)

    def model_url(self, order: StartOrder, name: str) -> str:
        """Not called: there is no folder that both sides see."""
        raise NotImplementedError

    def image(self) -> Mapping[str, object] | None:
        return None


class _Elsewhere:
    """A container of which only the address is known."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.accepts_itself = True
        self.started = time.monotonic()

    def exit_status(self) -> int | None:
        return None

    def log(self) -> bytes:
        return b""

    def terminate(self) -> None:
        raise NotImplementedError

    def listening(self) -> frozenset[int] | None:
        return None
