"""First half of a start: opens the archive in a thread, reports what it serves, and plans the processes."""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.model.extract import appear_at_sagemaker_folder
from tfs_proxy.model.report.prepare import Prepared, prepare
from tfs_proxy.model.report.script import report_on_script
from tfs_proxy.observe.traces import trace_sampling
from tfs_proxy.run import plan
from tfs_proxy.run.gpus import Placement, count_gpus, spread, visible_devices
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.programs.model_server import monitoring_for, program
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ScriptLoadError
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)


LayOut = Callable[[str | None, Workspace, Settings, threading.Event], str | None]


class ServeRequest(Struct, frozen=True):
    """Requests of the command line, besides the settings."""

    model: str | None
    """Archive, folder or address to serve; None for that of the settings."""

    model_server: str
    """Program of the model server, as the command line names it."""

    environ: Mapping[str, str]
    """Environment for the processes of the run."""

    flags: tuple[str, ...] | None = None
    """Flags of the model server if it runs as in the image tensorflow/serving, without an archive; else
    None."""

    lay_out: LayOut | None = None
    """Function that makes a folder of a model that is neither an archive nor a folder; None without one."""

    sample: Path | None = None
    """Picture that the first request sends; None for a request that is made from the signature."""


async def open_archive(
    request: ServeRequest, settings: Settings, workspace: Workspace, before: Prepared | None = None
) -> Prepared:
    """Opens the archive in a thread, which cancelling ends, and logs what it serves that was not ``before``.

    Raises what `prepare` raises, and ScriptLoadError for a script that can't be used. One that users have
    changed may have nothing that a start would warn of: nobody looks at warnings then.
    """
    cancelled = threading.Event()

    def prepare_all() -> Prepared:
        if request.flags is not None:
            from tfs_proxy.run.tensorflow_serving import prepare_flags

            return prepare_flags(request.flags, settings)
        model = request.model or settings.model
        if request.lay_out is not None:
            model = request.lay_out(model, workspace, settings, cancelled)
        return prepare(model, settings, workspace, request.environ, cancelled)

    prepared = await in_daemon_thread(prepare_all, "archive", cancelled)
    layout = prepared.served.layout
    said = () if before is None else (*before.report, *before.warnings)
    root = layout.root
    has_siblings = settings.reload or settings.loaded_as
    if before is not None and not layout.code.is_relative_to(workspace.root):
        doubts = report_on_script(layout, script_model=prepared.served.script_model is not None).warnings
        if doubt := next((doubt for doubt in doubts if not any(doubt in line for line in said)), None):
            raise ScriptLoadError(doubt)
    for level, lines in ((logging.INFO, prepared.report), (logging.WARNING, prepared.warnings)):
        for line in lines:
            if line not in said:
                log.log(level, "%s", line)
    prepared.refuse_unusable_script()
    # Each stack of a pipeline or a batch job would want the folder: only a container's own run has it.
    has_container = os.getpid() == 1
    if prepared.served.script and root.is_relative_to(workspace.root) and has_container and not has_siblings:
        appear_at_sagemaker_folder(root)
    return prepared


def find_host_resources(request: ServeRequest, prepared: Prepared, held: ExitStack) -> plan.HostResources:
    """The machine's resources for the model servers of ``prepared``: none if it needs none.

    ``held`` reserves their ports.
    """
    if not (prepared.models or prepared.flags):
        return plan.HostResources((), (), 0, request.environ)
    settings = prepared.settings
    flags = prepared.flags
    # Flags name the model server's ports themselves; ports that they leave open are free ones.
    port_range = None if flags else settings.safe_port_range
    ports = sockets.model_server_ports(port_range, settings.instance_count, held)
    words = flags.words if flags else settings.extra_args
    return resources_on(ports, request, settings, words)


def resources_on(
    ports: Sequence[tuple[int, int]],
    request: ServeRequest,
    settings: Settings,
    flags: Sequence[str],
) -> plan.HostResources:
    """The machine's resources for model servers on these ports, gRPC and REST, with these flags.

    One alone uses all GPUs, several one each. Raises SettingsError if the model server can't run here.
    """
    words = program(request.model_server)
    placements: tuple[Placement, ...] = ()
    if len(ports) > 1:
        placements = spread(len(ports), visible_devices(request.environ), settings.gpu_memory_margin)
    for index, placement in enumerate(placements):
        log.info("model server %d: on %s", index, placement.device)
    return plan.HostResources(
        model_server=words,
        ports=ports,
        gpus=count_gpus(),
        environ=request.environ,
        monitoring=monitoring_for(flags),
        placements=placements,
    )


def plan_processes(
    prepared: Prepared, workspace: Workspace, host: plan.HostResources, port: int, *, counts_requests: bool
) -> plan.ProcessPlan:
    """The model servers' processes and the deployment; writes their configuration files.

    Clients know ``port``. ``counts_requests`` says that workers write the lines of their requests.
    """
    host = replace(host, traces=trace_sampling(host.environ), counts_requests=counts_requests)
    if prepared.flags is not None:
        from tfs_proxy.run.tensorflow_serving import plan_flags

        planned = plan_flags(prepared.served, prepared.flags, prepared.settings, workspace, host, port)
    else:
        planned = plan.plan(prepared.models, prepared.served, prepared.settings, workspace, host)
    for path, text in planned.files.items():
        path.write_text(text)
    if planned.open_ports:
        log.info("%s", planned.open_ports)
    return planned
