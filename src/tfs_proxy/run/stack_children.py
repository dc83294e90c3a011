"""The processes of one stack: its model servers and gunicorn, and why they can't start."""

import logging
import os
import re
import signal
from contextlib import suppress

from tfs_proxy.model.report.prepare import without_workspace
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.host.processes import describe_exit, shell_status
from tfs_proxy.run.model_servers import ModelServers
from tfs_proxy.run.process import ChildProcess, Children, ProcessSpec, Spawn, Tick
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.run.readiness import Readiness, StackState
from tfs_proxy.run.run import RunHost
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import BootFailure
from tfs_proxy.values.errors import (
    ModelLoadError,
    ModelServerEnded,
    ScriptLoadError,
    StopServing,
)
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

SPARE_WORKERS = 3
"""The start fails if this many workers more than configured end while they load the application."""


class StackChildren(Children):
    """The model servers, which run on ``devices``, and gunicorn; and how ready they are.

    ``servers`` are its own, unless they are ``common`` ones of many stacks. With ``own_exit_status`` a model
    server that ends during the start ends the run with its exit status.
    """

    def __init__(
        self,
        settings: Settings,
        servers: ModelServers,
        workspace: Workspace,
        host: RunHost,
        *,
        common: bool = False,
        own_exit_status: bool = False,
        tick: Tick = lambda: None,
    ) -> None:
        super().__init__(host.deaths, tick)
        self.servers = servers
        self.workers: ChildProcess | None = None
        # A hanging call is over its limit before its worker is replaced.
        replaced_seconds = settings.wait_time_seconds + settings.script_timeout_seconds
        heartbeats = Heartbeats(
            settings.gunicorn_workers, replaced_seconds, settings.gunicorn_timeout_seconds, host.counts
        )
        self.readiness = Readiness(heartbeats, servers.states, self.down)
        self._front = host.front
        self._model_servers = [] if common else servers.processes
        self._workspace = workspace
        self._own_exit_status = own_exit_status
        self._replaced: tuple[str, ...] = ()
        self._script: str | None = None
        self._logged_failure: BootFailure | None = None

    def adopt(self, former: "StackChildren") -> None:
        """Uses the model servers of another stack, and looks at its own whenever one of these ends."""
        self.servers = former.servers
        self._model_servers = former.servers.processes
        self.stirred = former.stirred
        self.readiness.rely_on(former.servers.states)

    def start_workers(
        self, spec: ProcessSpec, spawn: Spawn, script: str | None = None, replaced: tuple[str, ...] = ()
    ) -> None:
        """Starts gunicorn, whose workers import the ``script``.

        Its requirements replace the packages ``replaced`` in them.
        """
        self.workers = self.start(spec, spawn)
        self._script = script
        self._replaced = replaced

    def kill_workers(self) -> None:
        if self.workers is not None:
            self.workers.kill()

    async def stop_workers(self, seconds: float) -> None:
        """Lets requests end, then ends gunicorn."""
        if self.workers is not None:
            await self.workers.stop(seconds)

    def in_start_order(self) -> list[ChildProcess]:
        return [*self._model_servers, *filter(None, [self.workers])]

    def down(self) -> frozenset[str]:
        return super().down() | self._front.down()

    def _look(self) -> bool:
        self._note_failed_worker()
        heartbeats = self.readiness.heartbeats
        for pid, number in heartbeats.take_overdue().items():
            with suppress(ProcessLookupError):
                if self.workers is not None and os.getpgid(pid) == self.workers.pid:
                    log.error("worker %d has been silent for too long, and gets %s", pid, number.name)
                    os.kill(pid, number)
                    continue
            heartbeats.drop(pid)
        soon = super()._look()
        is_disturbed = bool(self._model_servers) and self.readiness.states.disturbed.is_set()
        return soon or is_disturbed or self.readiness.state is not StackState.READY

    def _may_restart(self, child: ChildProcess) -> bool:
        """A model server or a script that fails during the start is not restarted."""
        super()._may_restart(child)
        starting = self.readiness.state is StackState.STARTING
        if child is not self.workers:
            self.servers.note_death(child)
            return not starting
        self.readiness.heartbeats.forget()
        has_failed = starting and child.exit_status in gunicorn.BOOT_FAILED
        return not (has_failed or self._fails_by_packages(child))

    def _note_failed_worker(self) -> None:
        """Logs once why a worker can't load the application; during the start, raises ScriptLoadError."""
        heartbeats = self.readiness.heartbeats
        starting = self.readiness.state is StackState.STARTING
        if starting and heartbeats.starts > heartbeats.wanted + SPARE_WORKERS:
            raise self._ended_by_import()
        failure = heartbeats.failure
        if failure is None or failure == self._logged_failure:
            return
        self._logged_failure = failure
        lines = [failure.report] if starting else [failure.report, failure.text]
        if any(lines):
            log.error("%s", without_workspace("\n".join(filter(None, lines)), self._workspace))
        if starting:
            raise ScriptLoadError(without_workspace(failure.text, self._workspace))

    def _reason_to_stop(self, child: ChildProcess) -> StopServing:
        how = describe_exit(child.exit_status)
        if self.readiness.state is StackState.STARTING and child is not self.workers:
            why = self.deaths.limits.shortage(child.exit_status)
            if not why and child.exit_status == -signal.SIGKILL:
                why = f", most likely for lack of memory: allow more than {self.deaths.limits.memory}"
            if self._own_exit_status:
                return ModelServerEnded(
                    f"{child.name} ended with {how}{why}.", shell_status(child.exit_status)
                )
            text = f"{child.name} ended with {how} while loading{why}."
            text += "" if why else f" {_last_output(child)}"
            return ModelLoadError(text, ended_with=child.exit_status)
        has_failed = child.exit_status in gunicorn.BOOT_FAILED or self._fails_by_packages(child)
        if child is self.workers and has_failed:
            return self._reason_of_failed_boot(child)
        return super()._reason_to_stop(child)

    def _fails_by_packages(self, child: ChildProcess) -> bool:
        """True if it raises an exception (status 1) during the start, with packages that replace its own."""
        return bool(self._replaced) and child.exit_status == 1 and self.readiness.state is StackState.STARTING

    def _reason_of_failed_boot(self, workers: ChildProcess) -> ScriptLoadError:
        """The error that a worker has reported; else how far the workers came, or gunicorn's output."""
        failure = self.readiness.heartbeats.failure
        if failure is not None:
            return ScriptLoadError(without_workspace(failure.text, self._workspace))
        if self.readiness.state is StackState.STARTING and self.readiness.heartbeats.starts:
            return self._ended_by_import()
        text = f"no worker can start: {workers.name} ended with {describe_exit(workers.exit_status)}. "
        if self._replaced:
            text += f"Packages of code/requirements.txt replace its own: {', '.join(self._replaced)}. "
        return ScriptLoadError(without_workspace(text + _last_output(workers), self._workspace))

    def _ended_by_import(self) -> ScriptLoadError:
        """The error of a script that ends each worker that imports it."""
        script = without_workspace(self._script or "the application", self._workspace)
        if shortage := self.deaths.limits.shortage(None):
            return ScriptLoadError(f"{script} can't be imported{shortage}.")
        return ScriptLoadError(f"{script} can't be imported: it ends the worker that imports it.")


def _last_output(child: ChildProcess) -> str:
    lines = [line for line in child.last_lines if line.strip()]
    errors = [line for line in lines if re.search(r"\b(Error|error:|Failed|failed|terminate)\b", line)]
    return "Its last output: " + " / ".join((errors or lines)[-3:]) if lines else "It printed nothing."
