"""What a run follows, as `reloader` loads it: changed code in new workers, models in a new generation."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tfs_proxy.errors import ScriptLoadError
from tfs_proxy.layout import ModelLayout
from tfs_proxy.report.prepare import Prepared
from tfs_proxy.report.script import report_on_script
from tfs_proxy.supervisor.front.run_status import RunStatus
from tfs_proxy.supervisor.generation import Serving
from tfs_proxy.supervisor.reloading.code_files import Snapshot, forget_bytecode, snapshot_of_folder
from tfs_proxy.supervisor.reloading.worker_exchange import WorkerExchange
from tfs_proxy.supervisor.succession import Generations


class Followed:
    """What ``look_at_models`` sees, and code where users change it, which ``exchange`` loads alone."""

    def __init__(
        self,
        look_at_models: Callable[[], Snapshot],
        generations: Generations,
        status: RunStatus,
        exchange: WorkerExchange | None,
    ) -> None:
        self.look_at_models = look_at_models
        self._generations, self._status, self._exchange = generations, status, exchange

    @property
    def _layout(self) -> ModelLayout | None:
        """The folder that is served; None if it has been unpacked by this run."""
        current = self._generations.current
        if current.serving is None:
            return None
        layout = current.serving.prepared.served.layout
        return None if layout.code.is_relative_to(current.workspace.root) else layout

    def look_at_code(self) -> Snapshot:
        """The files of the code."""
        layout = self._layout
        return {} if layout is None else snapshot_of_folder(layout.code)

    async def load_code(self, changed: Sequence[Path]) -> str:
        """Load code in new workers; a first script and other packages need a new generation.

        Raises StopServing, with everything as it was, if it can't be used.
        """
        layout, serving = self._layout, self._generations.current.serving
        if layout is None or serving is None or self._exchange is None:
            return "what was there"
        forget_bytecode(changed)
        had_script, has_script = serving.deployment.script is not None, layout.script.is_file()
        if had_script and not has_script:
            raise ScriptLoadError(f"{layout.shown_script} is gone: put one there.")
        if (has_script and not had_script) or layout.requirements in changed:
            await self.load_models()
        else:
            if has_script:
                _refuse_doubtful(layout, serving.prepared)
            await self._exchange.replace_workers(self._generations.current)
        return "the new code"

    async def load_models(self) -> str:
        """Load what is there now in a new generation; raises StopServing, with everything as it was."""
        layout = self._layout
        if layout is not None:
            forget_bytecode(snapshot_of_folder(layout.code))
        return served(await self._generations.load_next(self._status))


def _refuse_doubtful(layout: ModelLayout, prepared: Prepared) -> None:
    """Raise ScriptLoadError for what a start would refuse or warn of: nobody looks at warnings here.

    What the start has warned of was there before, and may stay.
    """
    findings = report_on_script(layout, script_model=prepared.served.script_model is not None)
    doubts = (doubt for doubt in findings.warnings if not any(doubt in line for line in prepared.warnings))
    reason = findings.fault or next(doubts, None)
    if reason is not None:
        raise ScriptLoadError(reason)


def served(serving: Serving) -> str:
    """What serves now, as the subject of a sentence."""
    if not serving.deployment.models:
        return f"the new script of {serving.deployment.default_model}"
    return ", ".join(
        f"{model} (version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))})"
        for model, versions in serving.deployment.models.items()
    )
