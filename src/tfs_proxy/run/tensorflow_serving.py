"""Replaces tensorflow/serving: a model server whose flags say what to serve, on its own ports.

It gets the flags that the image tensorflow/serving sets, then the user's, and watches the models' folders
itself. This package adds only ``/invocations`` and ``/ping``.
"""

from collections.abc import Sequence
from pathlib import Path

from google.protobuf import text_format

from tfs_proxy.model.discover import DiscoveredModel, default_model
from tfs_proxy.model.report.first_request import first_request
from tfs_proxy.model.report.prepare import Prepared, check_worker_class, refuse_multi_model
from tfs_proxy.model.report.script import ScriptFindings, report_on_script
from tfs_proxy.model.report.served import Served
from tfs_proxy.model.report.serving_flags import ServingFlags, as_the_image
from tfs_proxy.run.plan import HostResources, ProcessPlan, deployment_of, monitoring_files
from tfs_proxy.run.process import ProcessSpec
from tfs_proxy.run.programs.model_server import MONITORING_FLAG, is_embedded
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.wire.protos import POOL, ModelServerConfig

EVERYWHERE = "0.0.0.0"  # noqa: S104 - as in tensorflow/serving
STILL_USED = frozenset({"SAGEMAKER_TFS_DEFAULT_MODEL_NAME", "SAGEMAKER_TFS_NGINX_LOGLEVEL"})
"""Settings ``SAGEMAKER_TFS_*`` that are not the model server's, whose settings are flags here."""


def prepare_flags(words: Sequence[str], settings: Settings) -> Prepared:
    """The models of a model server with the flags ``words``, and the report on them.

    Raises SettingsError for a setting that can't be used, or a model's folder that can't be read.
    """
    refuse_multi_model(settings)
    check_worker_class(settings)
    if settings.secured:
        raise SettingsError(
            f"{next(iter(settings.secured))} can't be used with tensorflow-serving, whose model server "
            "listens on ports of its own, without keys and TLS: take `tfs-proxy serve`."
        )
    flags = as_the_image(words, settings)
    config_file = flags.value("model_config_file")
    base = Path(flags.value("model_base_path"))
    size_bytes = 0
    names = [flags.value("model_name")]
    if config_file:
        try:
            text = Path(config_file).read_text(encoding="utf-8")
            config = ModelServerConfig()
            text_format.Parse(text, config, descriptor_pool=POOL, allow_unknown_field=True)
            names = [model.name for model in config.model_config_list.config]
        except (OSError, UnicodeDecodeError, text_format.ParseError):
            names = []  # the model server reports what is wrong with it
    models = tuple(DiscoveredModel(name, {}) for name in sorted(set(names)))
    default = default_model(models, settings.default_model_name) if models else ""
    try:
        # The script of ``/invocations`` is in ``code/`` next to the versions, or the config file.
        layout = ModelLayout(Path(config_file).parent if config_file else base).with_program(settings.program)
        served = Served(layout, models, default)
        script = report_on_script(served.layout, script_model=False)
        if not config_file and base.is_dir():  # the model server loads the newest version below it
            versions = [int(folder.name) for folder in base.iterdir() if folder.name.isdecimal()]
            for newest in sorted(versions)[-1:]:
                size_bytes = DiscoveredModel("", {0: base / str(newest)}).bytes_on_disk
        sized = settings.sized_for(size_bytes)
    except OSError as error:
        raise SettingsError(f"{error.filename} can't be read: {error.strerror}.") from error
    return Prepared(
        settings=sized,
        served=served,
        models=(),
        report=tuple(_report(flags, served, script, settings)),
        warnings=script.warnings,
        script_fault=script.fault,
        first_request=first_request(served, (), rest_api=settings.rest_api and bool(models)),
        flags=flags,
    )


def _report(flags: ServingFlags, served: Served, script: ScriptFindings, settings: Settings) -> list[str]:
    rest = flags.port("rest_api_port")
    grpc = flags.port("port")
    apis = [f"gRPC on port {grpc}" if grpc else "", f"REST on {rest}" if rest else ""]
    lines = [f"As tensorflow/serving: {', '.join(filter(None, apis)) or 'no port'}, and also /invocations"]
    source = flags.value("model_config_file") or flags.value("model_base_path")
    lines += [f"Model {model.name}, from {source}" for model in served.models]
    if served.script:
        lines.append(f"Script of /invocations: {script.sentence}")
    lines += [f"Note: {note}" for note in script.notes]
    unused = [
        name for name in settings.changed if name.startswith("SAGEMAKER_TFS_") and name not in STILL_USED
    ]
    return lines + [f"Note: {name} is ignored: give the model server's flag instead." for name in unused]


def plan_flags(
    served: Served,
    flags: ServingFlags,
    settings: Settings,
    workspace: Workspace,
    host: HostResources,
    invocations_port: int,
) -> ProcessPlan:
    """One model server on ports of its own, and the deployment for workers.

    ``invocations_port`` is that of ``/invocations``. Raises SettingsError if gRPC has the same port.
    """
    if flags.port("port") == invocations_port:
        raise SettingsError(
            f"--port={invocations_port} can't be used: /invocations has this port. Take another port, "
            "or give /invocations another one with SAGEMAKER_BIND_TO_PORT."
        )
    callers = settings.gunicorn_workers * settings.gunicorn_threads
    words = [f"--grpc_socket_path={workspace.grpc_socket(0)}", f"--grpc_max_threads={4 * callers}"]
    if host.monitoring.config is not None:
        words.append(f"--{MONITORING_FLAG}={workspace.monitoring_config}")
    if is_embedded(host.model_server):
        words.append(f"--host={settings.hosts.partition(',')[0] or EVERYWHERE}")
    words += flags.words
    if flags.port("rest_api_port") in {0, invocations_port}:  # then nginx passes on requests to /v1/
        words.append(f"--rest_api_port={host.ports[0][1]}")
    all_flags = ServingFlags(tuple(words))
    instance = Instance(
        0, all_flags.port("rest_api_port"), all_flags.port("port"), all_flags.value("grpc_socket_path")
    )
    return ProcessPlan(
        # No models are known if the config file can't be read, but it is not a script model.
        deployment=deployment_of(
            served,
            settings,
            (instance,),
            traces=host.traces,
            counts_requests=host.counts_requests,
            by_flags=True,
        ),
        files=monitoring_files(host.monitoring, workspace),
        model_servers=(
            ProcessSpec(
                "model server 0", (*host.model_server, *all_flags.words), host.environ, drops_output=True
            ),
        ),
        metrics_path=host.monitoring.path,
        gpus=host.gpus,
    )
