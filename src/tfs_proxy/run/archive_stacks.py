"""The stacks of one archive: the one that serves, the next one while it loads, former ones that end.

The first one has the folder and the control API of the run; a later one has a folder of its own.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Collection, Iterator

from tfs_proxy.model.report.first_request import picture_request, ready_line
from tfs_proxy.observe.begun_requests import all_under_way
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.run.control_api import ControlApi, served_models
from tfs_proxy.run.host.sockets import Listeners
from tfs_proxy.run.host.waiting import together, unless_set
from tfs_proxy.run.host.workspace import LONGEST_PATH, make_workspace_within, run_workspace
from tfs_proxy.run.metrics import RunMetrics
from tfs_proxy.run.open_inference import ONLY_VERSION, open_inference_routes
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.plan import ProcessPlan
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.run.reloading import Reloading
from tfs_proxy.run.run import Run, RunHost, Stacks, Versions
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, last_seconds
from tfs_proxy.run.scraping import OutsideMetrics
from tfs_proxy.run.stack import Stack, StackHost
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.settings.parsers import PortRange
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment, Instance
from tfs_proxy.values.errors import ArchiveError, ScriptLoadError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.routes import ONE_ARCHIVE

log = logging.getLogger(__name__)

LONGEST_PATH_WITHIN = "999999/control.sock"
"""The longest path of a socket in the folder of a later stack."""


async def serve(settings: Settings, listeners: Listeners, request: ServeRequest) -> int:
    """Serves one archive until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises SettingsError for changes that can't be followed, StopServing if the run can't begin or go on.
    ``listeners`` are closed at the end.
    """
    reloading = Reloading(settings, request) if settings.reload else None
    longest_path = LONGEST_PATH if reloading is None else LONGEST_PATH_WITHIN
    with run_workspace(settings.home, longest_path) as workspace:
        run = Run(
            settings,
            listeners,
            request.environ,
            workspace,
            lambda host: ArchiveStacks(settings, request, host, reloading),
        )
        return await run.serve()


class ArchiveStacks(Stacks):
    """``current`` is the stack that serves; at most one loads, and former ones end."""

    kind = ONE_ARCHIVE

    def __init__(
        self, settings: Settings, request: ServeRequest, host: RunHost, reloading: Reloading | None
    ) -> None:
        self._settings = settings
        self._request = request
        self._host = host
        self._reloading = reloading
        self._front = host.front
        self._records = host.records
        self._stack_host = StackHost(host, tick=self._route_grpc)
        self.current = Stack(settings, request, host.workspace, self._stack_host)
        self._outside = OutsideMetrics(lambda: {"": host.workspace.metrics})
        self._number = 1
        self._exchanged = asyncio.Event()
        self._living = [self.current]
        self._ending: dict[Stack, asyncio.Task[None]] = {}
        metrics = RunMetrics(
            self,
            host.workspace.journal,
            self._outside.measure,
            host.records.measure,
            *([] if reloading is None else [reloading.measure]),
            front=self._front,
            steps=self.current.readiness.steps,
            threads_each=settings.gunicorn_threads,
        )
        protocol = open_inference_routes(self, host.workspace.translator_socket)
        routes = {
            **(protocol if settings.publishes_open_inference else {}),
            **served_models(self._served_names),
        }
        self.control_api = ControlApi(
            self.current, routes, run=self, measure=metrics.measure, outside=self._outside
        )

    @property
    def readiness(self) -> Readiness:
        return self.current.readiness

    @property
    def deployment(self) -> Deployment | None:
        return self.current.deployment

    @property
    def children(self) -> StackChildren:
        """The processes of the stack that serves."""
        return self.current.children

    def ready_versions(self) -> Versions:
        deployment = self.deployment
        if deployment is None:
            return {}
        if deployment.script_model is not None:
            return {} if self.readiness.reason() else {deployment.default_model: (ONLY_VERSION,)}
        return {model: self.readiness.states.available(model) for model in deployment.models}

    def _served_names(self) -> Collection[str] | None:
        deployment = self.deployment
        return deployment.models.keys() if deployment is not None and deployment.publishes_rest else None

    async def answer_at_front(self) -> None:
        """Answers the front's requests, mostly by 503, until workers do."""
        count = None if self._front.behind_nginx else self._records.note
        await self.control_api.stand_in(self._front.web, count)

    def in_flight(self) -> int:
        return all_under_way(self._host.workspace.journal)

    async def start(self) -> str:
        """Starts the first stack; returns the line with its address once it is ready."""
        if self._reloading is not None:
            self._reloading.note_models()
        stack = self.current
        prepared = await stack.open_archive()
        planned = await stack.make_plan(prepared)
        deployment = planned.deployment
        self._count_for(planned)
        self._front.start_translator(
            deployment.doors.open_inference, len(deployment.instances), deployment.bodies.decoded_bytes
        )
        # A worker that is still loading would take code that is changed from now on, before it is tried.
        await stack.start_in_time(
            prepared, planned, self._front.web, every_worker=self._reloading is not None
        )

        async def open_doors() -> None:
            await self._front.until_translator_listens()
            await self._front.until_nginx_drained(self._front.begin_to_route_http(deployment))

        await stack.children.watch_during(open_doors())
        stack.begin_serving()
        self._route_grpc()
        self._outside.warm_up()
        sample = self._request.sample
        first = prepared.first_request if sample is None else picture_request(sample)
        reach = self._front.reach
        if first.signature:
            reach = f"{reach}, with the signature {first.signature} unless a request names another"
        return ready_line(reach, first.command(self._front.url), self._settings.api_keys)

    async def watch(self) -> None:
        """Watches the stack that serves, and loads changes. Raises StopServing if a process gives up."""

        async def watch_current() -> None:
            while True:
                self._exchanged.clear()
                await unless_set(self._exchanged, self.current.watch_forever())

        following = [self._outside.keep_folding()]
        if self._reloading is not None:
            following.append(self._reloading.follow(self.current.code_of_users, self._load_next))
        await together(watch_current(), *following)

    def abandon_loading(self) -> None:
        self.current.servers.kill()

    async def stop(self, deadline: float) -> None:
        """Ends the workers, former stacks, and then the model servers."""
        await self.current.children.stop_workers(deadline - time.monotonic())
        if self._ending:
            await asyncio.wait(self._ending.values(), timeout=last_seconds(deadline))
        for stack in self._ending:
            stack.children.kill_workers()
        await asyncio.gather(*self._ending.values())
        await self.current.servers.stop(last_seconds(deadline))
        self.current.close()

    def all_children(self) -> Iterator[ChildProcess]:
        for stack in self._living:
            yield from stack.children.in_start_order()

    async def _load_next(self) -> str:
        """Replaces what serves by the present code and archive; returns what that is.

        Raises StopServing, with everything as it was, if it can't be used.
        """
        before = self.current
        self._number += 1
        run = self._host.workspace
        # A short name, since sockets have short paths.
        workspace = make_workspace_within(run, run.root / str(self._number), run.journal, run.metrics)
        settings = self._settings.with_values(
            safe_port_range=other_ports(self._settings, before.servers.instances)
        )
        stack = Stack(settings, self._request, workspace, self._stack_host)
        self._living.append(stack)
        try:
            prepared = await stack.open_archive(before.prepared)
            if not await stack.adopt(prepared, before):
                ending = [task for each, task in self._ending.items() if each.servers is not before.servers]
                if ending:  # memory and ports are for two; a load that is given up ends no drain
                    await asyncio.wait(ending)
            planned = await stack.make_plan(prepared)
            if before.deployment is not None:
                by_users = stack.code_of_users is not None
                refuse_other_kind(before.deployment, planned.deployment, by_users=by_users)
            await stack.open_control_api(of_run=self.control_api.respond)
            await stack.start_in_time(prepared, planned, self._front.web, every_worker=True)
        except BaseException:
            if stack.servers is not before.servers:
                stack.servers.kill()
            stack.children.kill_workers()
            await stack.children.stop_workers(LAST_STEPS_SECONDS)
            await self._remove(stack)
            raise
        # From here on without a pause: every request finds the old stack or the new one.
        stack.begin_serving()
        self.current = stack
        self._count_for(planned)
        self._outside.warm_up()
        self._route_grpc()
        former_nginx = self._front.begin_to_route_http(planned.deployment)
        self._exchanged.set()
        self._ending[before] = asyncio.create_task(self._drain(before, former_nginx))
        return serving(planned)

    def _count_for(self, planned: ProcessPlan) -> None:
        """Has requests and model servers measured as those of this plan."""
        deployment = planned.deployment
        self._records.set_models(KnownModels(deployment.default_model, deployment.models))
        self._outside.model_servers.begin(deployment.instances, planned.metrics_path)

    async def _drain(self, old: Stack, former_nginx: Collection[int]) -> None:
        """Lets requests in flight end, then the processes: the model servers get no requests after that."""
        await asyncio.gather(
            old.children.stop_workers(self._settings.stop_seconds),
            self._front.until_nginx_drained(former_nginx, self._settings.stop_seconds),
        )
        await self._remove(old)

    async def _remove(self, stack: Stack) -> None:
        """Ends what no other stack uses, and removes its folders; of the run's, archive and packages."""
        if not any(each.servers is stack.servers for each in self._living if each is not stack):
            await stack.servers.stop(LAST_STEPS_SECONDS)
        stack.close()
        self._living.remove(stack)
        for root in stack.folders.difference(*(each.folders for each in self._living)):
            workspace = Workspace(root)
            is_first = root == self._host.workspace.root
            for folder in (workspace.model, workspace.packages) if is_first else (root,):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self._ending.pop(stack, None)

    def _route_grpc(self) -> None:
        self._front.route_grpc(self.readiness.loaded(), self.current.servers.workspace)


def serving(planned: ProcessPlan) -> str:
    """The models that serve now, with their versions, for the log; the code if model servers are the same."""
    if not planned.model_servers:
        return "the new code"
    return ", ".join(
        f"{model} (version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))})"
        for model, versions in planned.deployment.models.items()
    )


def other_ports(settings: Settings, used: Collection[Instance]) -> PortRange | None:
    """The part of the range of ports for the next model servers, which share none with those in use."""
    ports = settings.safe_port_range
    if ports is None or ports.low not in {instance.grpc_port for instance in used}:
        return ports
    return PortRange(ports.low + 2 * settings.instance_count, ports.high)


def refuse_other_kind(before: Deployment, new: Deployment, *, by_users: bool) -> None:
    """Raises ArchiveError if the translator, which is not restarted, would have to answer in another way.

    ScriptLoadError if the script has been removed from a folder ``by_users``.
    """
    if by_users and before.script is not None and new.script is None:
        raise ScriptLoadError(f"{before.script} is gone: put one there.")
    if before.doors.open_inference != new.doors.open_inference:
        raise ArchiveError(
            f"the Open Inference Protocol would be answered by the {new.doors.open_inference} instead of the "
            f"{before.doors.open_inference}: start again to serve this."
        )
