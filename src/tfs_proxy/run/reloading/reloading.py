"""All of ``serve --reload`` in one run: the followed files, and the loader of a change."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.model.report.script import report_on_script
from tfs_proxy.observe.catalogue import UPDATE_REFUSED
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.archive_stacks import ArchiveStacks
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.reloading.files import Snapshot, forget_bytecode, model_source, snapshot_of_folder
from tfs_proxy.run.reloading.reloader import Reloader
from tfs_proxy.run.reloading.worker_exchange import WorkerExchange
from tfs_proxy.run.stack import Stack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ScriptLoadError, SettingsError
from tfs_proxy.values.layout import SAGEMAKER_MODEL_DIR, ModelLayout
from tfs_proxy.values.names import printable
from tfs_proxy.values.resources import mounts
from tfs_proxy.wire.s3_client import S3_SCHEME

log = logging.getLogger(__name__)


class Followed:
    """Follows ``look_at_models``, and code where users change it, which ``exchange`` loads alone."""

    def __init__(
        self,
        look_at_models: Callable[[], Snapshot],
        stacks: ArchiveStacks,
        exchange: WorkerExchange,
    ) -> None:
        self.look_at_models = look_at_models
        self._stacks, self._exchange = stacks, exchange

    @property
    def _layout(self) -> ModelLayout | None:
        """The folder that is served; None if it has been unpacked by this run."""
        current = self._stacks.current
        if current.prepared is None:
            return None
        layout = current.prepared.served.layout
        return None if layout.code.is_relative_to(current.workspace.root) else layout

    def look_at_code(self) -> Snapshot:
        layout = self._layout
        return {} if layout is None else snapshot_of_folder(layout.code)

    async def load_code(self, changed: Sequence[Path]) -> str:
        """Loads code in new workers; a first script and other packages need a new stack.

        Raises StopServing, with everything as it was, if it can't be used.
        """
        layout, current = self._layout, self._stacks.current
        prepared, deployment = current.prepared, current.deployment
        if layout is None or prepared is None or deployment is None:
            return "what was there"
        forget_bytecode(changed)
        had_script, has_script = deployment.script is not None, layout.script.is_file()
        if had_script and not has_script:
            raise ScriptLoadError(f"{layout.shown_script} is gone: put one there.")
        if (has_script and not had_script) or layout.requirements in changed:
            await self.load_models()
        else:
            if has_script:
                _refuse_doubtful(layout, prepared)
            await self._exchange.replace_workers(current)
        return "the new code"

    async def load_models(self) -> str:
        """Loads the present archive in a new stack. Raises StopServing, with everything as it was."""
        layout = self._layout
        if layout is not None:
            forget_bytecode(snapshot_of_folder(layout.code))
        return served(await self._stacks.load_next())


def _refuse_doubtful(layout: ModelLayout, prepared: Prepared) -> None:
    """Raises ScriptLoadError for what a start would refuse or warn of: nobody looks at warnings here.

    Warnings that the start has given may stay.
    """
    findings = report_on_script(layout, script_model=prepared.served.script_model is not None)
    doubts = (doubt for doubt in findings.warnings if not any(doubt in line for line in prepared.warnings))
    reason = findings.fault or next(doubts, None)
    if reason is not None:
        raise ScriptLoadError(reason)


def served(stack: Stack) -> str:
    """The models that it serves, with their versions, for the log."""
    if not stack.models and stack.deployment is not None:
        return f"the new script of {stack.deployment.default_model}"
    return ", ".join(
        f"{model} (version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))})"
        for model, versions in stack.models.items()
    )


RELOAD: Final = "--reload (TFS_PROXY_RELOAD)"
KEEPS_ITS_FILE: Final = (
    "{file} is a mount of its own, so a file that is put in its place is never seen: mount its folder "
    "instead (docker run -v FOLDER:/opt/ml/model; no subPath in Kubernetes)"
)
LOOK_SECONDS: Final = 0.2
S3_LOOK_SECONDS: Final = 1.0


def refuse_unusable_reload(settings: Settings, request: ServeRequest) -> None:
    """Raises SettingsError if changes should be followed and can't be."""
    if request.flags is not None:
        raise SettingsError(f"{RELOAD} can't be used here: only `tfs-proxy serve` follows changes.")
    ports = settings.safe_port_range
    if ports is not None and ports.low + 4 * settings.instance_count - 1 > ports.high:
        raise SettingsError(
            f"{RELOAD} can't be used with SAGEMAKER_SAFE_PORT_RANGE={ports.low}-{ports.high}: old and new "
            f"model servers need {4 * settings.instance_count} ports while both run."
        )


class Reloading:
    """The changes that a run follows and loads."""

    def __init__(self, settings: Settings, request: ServeRequest) -> None:
        self._settings = settings
        model = request.model or settings.model
        self._look_seconds = S3_LOOK_SECONDS if (model or "").startswith(S3_SCHEME) else LOOK_SECONDS
        self._source, self._path = model_source(model), Path(model or SAGEMAKER_MODEL_DIR).resolve()
        self._models: Snapshot = {}
        self._reloader: Reloader | None = None

    def measure(self) -> Iterator[MeasuredMetric]:
        """The metric of a change that is refused."""
        refused = self._reloader is not None and self._reloader.refused
        yield MeasuredMetric(UPDATE_REFUSED, {(): float(refused)})

    def look(self) -> None:
        """Notes the state of models and archive before they are opened."""
        self._models = self._source.look()
        for point in mounts():
            if point.is_relative_to(self._path) and point.is_file():
                log.warning("%s", KEEPS_ITS_FILE.format(file=printable(str(point))))

    async def run(self, stacks: ArchiveStacks) -> None:
        """Loads each change from now on."""
        followed = Followed(self._source.look, stacks, WorkerExchange(self._settings))
        self._reloader = Reloader(followed, self._models, self._look_seconds)
        await self._reloader.run()
