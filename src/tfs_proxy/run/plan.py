"""Settings and the contents of the archive -> the model servers' processes, as values: pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tfs_proxy.model.report.served import Served, body_limits, doors_of
from tfs_proxy.run.gpus import Placement
from tfs_proxy.run.guarded import guard_of
from tfs_proxy.run.process import ProcessSpec
from tfs_proxy.run.programs import model_server
from tfs_proxy.run.programs.model_server import NO_MONITORING, Monitoring
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import (
    CaptureOptions,
    Deployment,
    GuardOptions,
    Instance,
    Observation,
    ServedModel,
    TimeLimits,
    TraceSampling,
    TransformLimits,
)
from tfs_proxy.values.layout import Workspace

MAX_TRANSFORM_MB = 100
DEFAULT_TRANSFORM_MB = 6


class HostResources(Struct, frozen=True):
    """The machine's resources for the model servers of an archive."""

    model_server: tuple[str, ...]
    """Command of the model server."""

    ports: Sequence[tuple[int, int]]
    """Ports of gRPC and REST for each model server; none for a script model, or if there are ``common``
    ones."""

    gpus: int
    """Number of GPUs that the driver shows."""

    environ: Mapping[str, str]
    """Environment for the processes."""

    monitoring: Monitoring = NO_MONITORING
    """Way in which the model servers show their own metrics."""

    common: tuple[Instance, ...] = ()
    """Model servers that exist already."""

    placements: tuple[Placement, ...] = ()
    """GPU of each model server, if they were chosen; else none."""

    traces: TraceSampling | None = None
    """Choice of requests to trace; None for none."""

    counts_requests: bool = False
    """True if workers write the lines of their requests, since no nginx does."""


class ProcessPlan(Struct, frozen=True):
    """The model servers of a stack, what its workers get to know, and the files for both."""

    deployment: Deployment
    """Deployment that workers get to know."""

    files: Mapping[Path, str]
    """Text by path."""

    model_servers: tuple[ProcessSpec, ...]
    """Processes of the model servers; none if there are common ones."""

    metrics_path: str | None = None
    """Path at which the model servers show their own metrics; None if they show none."""

    open_ports: str | None = None
    """Sentence on ports that are open to the outside and were not asked for; None without any."""

    gpus: int = 0
    """Number of GPUs that the driver shows."""


def plan(
    models: Sequence[ServedModel],
    served: Served,
    settings: Settings,
    workspace: Workspace,
    host: HostResources,
) -> ProcessPlan:
    instances = host.common or instances_on(host.ports, workspace)
    deployment = deployment_of(
        served, settings, instances, traces=host.traces, counts_requests=host.counts_requests
    )
    if host.common:
        return ProcessPlan(deployment, files={}, model_servers=())
    files = files_of_model_servers(models, settings, workspace, host.monitoring)
    return ProcessPlan(
        deployment=deployment,
        files=files,
        model_servers=tuple(
            model_server_process(
                instance, settings, workspace, host, script=served.script is not None, models=len(models)
            )
            for instance in instances
        ),
        metrics_path=host.monitoring.path,
        gpus=host.gpus,
        open_ports=model_server.open_to_the_outside(
            host.model_server, instances, script=served.script is not None
        ),
    )


def instances_on(ports: Sequence[tuple[int, int]], workspace: Workspace) -> tuple[Instance, ...]:
    """The addresses of one model server for each pair of ports, gRPC and REST."""
    return tuple(
        Instance(index, rest_port=rest, grpc_port=grpc, grpc_socket=str(workspace.grpc_socket(index)))
        for index, (grpc, rest) in enumerate(ports)
    )


def files_of_model_servers(
    models: Sequence[ServedModel], settings: Settings, workspace: Workspace, monitoring: Monitoring
) -> Mapping[Path, str]:
    """The configuration files that `model_server_process` names, for these models."""
    files = {workspace.model_config: model_server.model_config(models, settings.version_labels)}
    if settings.enable_batching:
        files[workspace.batching_config] = model_server.batching_config(settings)
    return {**files, **monitoring_files(monitoring, workspace)}


def monitoring_files(monitoring: Monitoring, workspace: Workspace) -> Mapping[Path, str]:
    """The file that makes the model servers show their own metrics, unless the user gives one."""
    return {} if monitoring.config is None else {workspace.monitoring_config: monitoring.config}


def deployment_of(
    served: Served,
    settings: Settings,
    instances: tuple[Instance, ...],
    *,
    traces: TraceSampling | None = None,
    counts_requests: bool = False,
    many_models: Path | None = None,
    by_flags: bool = False,
) -> Deployment:
    """Make a deployment, which is all that workers get to know.

    With ``many_models``, the folder of all models' workspaces, its workers serve models without a script.
    With ``by_flags`` the model server's flags say what is served: a script is never the model itself.
    """
    guard = guard_of(settings)
    script_seconds = settings.script_timeout_seconds
    folder = settings.capture_folder
    of_many = bool(many_models or settings.loaded_as)
    capture = None if folder is None else CaptureOptions(folder, settings.capture_percent, of_many)
    if settings.gunicorn_worker_class == "sync":
        script_seconds = min(script_seconds, settings.gunicorn_timeout_seconds)
    return Deployment(
        default_model=served.default_model,
        models={model.name: tuple(sorted(model.versions)) for model in served.models},
        instances=instances,
        script=None if many_models else served.script,
        import_paths=served.import_paths,
        bodies=body_limits(None if by_flags else served.script, settings),
        times=TimeLimits(
            settings.request_timeout_seconds,
            script_seconds,
            settings.wait_time_seconds,
            settings.max_wait_seconds,
        ),
        doors=doors_of(served.script, served.script_model, settings),
        guard=GuardOptions(guard.origins, guard.hosts, guard.is_local),
        observation=Observation(
            counts_requests,
            str(settings.access_log),
            traces,
            capture,
        ),
        transforms=transform_limits(settings),
        default_accept=settings.default_accept,
        script_model=None if many_models or by_flags else served.script_model,
        inner_names=served.inner_names,
        loaded_as=settings.loaded_as,
        version_labels=tuple(settings.version_labels),
        graph_folders=served.graph_folders,
        csv_columns=served.csv_columns(settings),
        model_dir=str(served.layout.root),
        is_batch=settings.batch,
        many_models=None if many_models is None else str(many_models),
    )


def transform_limits(settings: Settings) -> TransformLimits:
    """A batch job's limits that keep the model servers busy, within 100 MB (docs/reference/sagemaker.md).

    Twice what can run at once: cores, or full batches if the model server batches; no more than
    the workers can take. The payload is that of the environment, else SageMaker's default.
    """
    running = settings.machine.cores
    if settings.enable_batching:
        running = settings.max_batch_size * settings.num_batch_threads * settings.instance_count
    taken = settings.gunicorn_workers * settings.gunicorn_threads
    configured_mb = settings.max_payload_mb if "SAGEMAKER_MAX_PAYLOAD_IN_MB" in settings.changed else 0
    payload_mb = min(configured_mb or DEFAULT_TRANSFORM_MB, MAX_TRANSFORM_MB)
    return TransformLimits(max(1, min(2 * running, taken, MAX_TRANSFORM_MB // payload_mb)), payload_mb)


def model_server_process(
    instance: Instance,
    settings: Settings,
    workspace: Workspace,
    host: HostResources,
    *,
    script: bool,
    models: int,
) -> ProcessSpec:
    """One model server, which reads so many ``models`` from the workspace's `model_config`.

    If those come and go, ``models`` is 0.
    """
    placement = host.placements[instance.index] if host.placements else None
    return ProcessSpec(
        name=f"model server {instance.index}",
        argv=model_server.argv(
            host.model_server,
            instance,
            settings,
            workspace.model_config,
            workspace.batching_config,
            placement=placement,
            monitoring_config=workspace.monitoring_config if host.monitoring.config else None,
            script=script,
            models=models,
        ),
        env=model_server.environment(host.environ, settings, placement),
        drops_output=True,
    )
