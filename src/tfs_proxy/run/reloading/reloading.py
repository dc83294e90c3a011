"""All of ``serve --reload``: look, wait until a change is complete, load it, report."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.model.report.script import report_on_script
from tfs_proxy.observe.catalogue import UPDATE_REFUSED
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.archive_stacks import ArchiveStacks
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.reloading.files import (
    Snapshot,
    changed_files,
    forget_bytecode,
    model_source,
    snapshot_of_folder,
)
from tfs_proxy.run.reloading.worker_exchange import WorkerExchange
from tfs_proxy.run.run_loop import cancel
from tfs_proxy.run.stack import Stack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ScriptLoadError, SettingsError, StopServing
from tfs_proxy.values.layout import SAGEMAKER_MODEL_DIR, ModelLayout
from tfs_proxy.values.names import printable
from tfs_proxy.values.resources import mounts
from tfs_proxy.wire.s3_client import S3_SCHEME

log = logging.getLogger(__name__)


class SettlingFiles:
    """Files that differ from the ``loaded`` ones count once they have been the same for ``seconds``."""

    def __init__(self, loaded: Snapshot, seconds: float) -> None:
        self._loaded = self._seen = loaded
        self._seconds = seconds
        self._since = 0.0

    def note(self, files: Snapshot, now: float) -> None:
        """Notes the files' present state."""
        if files != self._seen:
            self._seen, self._since = files, now

    @property
    def is_pending(self) -> bool:
        """True if there is a change, complete or not."""
        return self._seen != self._loaded

    def is_whole(self, now: float) -> bool:
        """True if there is no change, or a complete one."""
        return not self.is_pending or now - self._since >= self._seconds

    def take(self) -> tuple[Path, ...]:
        """The files that have changed; from here on these are loaded."""
        changed = changed_files(self._loaded, self._seen)
        self._loaded = self._seen
        return changed


CODE_SETTLED_SECONDS = 0.05
"""Changed code is complete after so long without changes: editors write several files, git many."""

MODELS_SETTLED_SECONDS = 2.0
"""The same for models and archives, which take longer to be copied."""

SHARE_OF_TIME = 0.1
"""Most of a core for looking: a folder of many files is looked at less often."""

SHOWN_FILES = 3


class Followed:
    """Follows ``look_at_models``, and code where users change it, which ``exchange`` loads alone."""

    def __init__(
        self, look_at_models: Callable[[], Snapshot], stacks: ArchiveStacks, exchange: WorkerExchange
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


class Reloader:
    """Follows what ``loader`` sees, every ``look_seconds``; ``models`` is what has been loaded of them."""

    def __init__(self, loader: Followed, models: Snapshot, look_seconds: float) -> None:
        self._loader = loader
        self._not_loaded: set[Path] = set()
        self._code = SettlingFiles(loader.look_at_code(), CODE_SETTLED_SECONDS)
        self._models = SettlingFiles(models, MODELS_SETTLED_SECONDS)
        self._least_seconds = self._look_seconds = look_seconds
        self.refused = False

    async def run(self) -> None:
        """Loads each change; a change during a load restarts it."""
        await self._whole_change()
        while True:
            self._not_loaded.update(self._models.take())
            loading = asyncio.create_task(self._load(self._code.take(), sorted(self._not_loaded)))
            changing = asyncio.create_task(self._whole_change())
            try:
                await asyncio.wait({loading, changing}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    loading.result()
                    await changing
            finally:
                await cancel(loading, changing)

    async def _whole_change(self) -> None:
        """Waits until files differ from those that were loaded last, and have stopped changing."""
        while True:
            await asyncio.sleep(CODE_SETTLED_SECONDS if self._code.is_pending else self._look_seconds)
            now = await self._look()
            is_changed = self._models.is_pending or self._code.is_pending
            if is_changed and self._code.is_whole(now) and self._models.is_whole(now):
                return

    async def _look(self) -> float:
        """Looks once; returns the time of it."""
        began = time.monotonic()
        code = await asyncio.to_thread(self._loader.look_at_code)
        models = await asyncio.to_thread(self._loader.look_at_models)
        self._code.note(code, began)
        self._models.note(models, began)
        now = time.monotonic()
        self._look_seconds = max(self._least_seconds, (now - began) / SHARE_OF_TIME)
        return began

    async def _load(self, code: Sequence[Path], models: Sequence[Path]) -> None:
        """Loads what has changed: the code, and models since those that serve."""
        began = time.monotonic()
        try:
            if models:
                log.info("%s changed: loading it in new processes", shown([*models, *code]))
                serving = await self._loader.load_models()
                self._not_loaded.clear()
            else:
                log.info("%s changed: loading the code in new workers", shown(code))
                serving = await self._loader.load_code(code)
        except (StopServing, OSError) as error:
            self.refused = True
            _report(error)
        else:
            self.refused = False
            log.info("%s serves, after %.2f s", serving, time.monotonic() - began)


def _report(error: StopServing | OSError) -> None:
    if isinstance(error, ScriptLoadError) and error.report:
        log.error("%s", error.report)
    reason = printable(str(error))
    sentence = reason if reason.endswith((".", "?")) else f"{reason}."
    log.error("the change can't be used: %s The models and code loaded before go on serving.", sentence)


def shown(files: Sequence[Path]) -> str:
    names = [printable(path.name) for path in files[:SHOWN_FILES]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


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
