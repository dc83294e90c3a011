"""App that gunicorn runs: built in each worker from the control API's deployment."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.serving.upstream.instances import (
    ask,
    fetch_deployment,
    metrics,
    ping,
    settled,
)
from tfs_proxy.settings.worker_environment import worker_workspace
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.worker import first_call
from tfs_proxy.worker.app import ContainerApp, create_app
from tfs_proxy.worker.many_models import ManyModelsApp
from tfs_proxy.worker.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    from tfs_proxy.serving.upstream.binary import BinaryUpstream


def _pool_requests(deployment: Deployment, servers: "BinaryUpstream") -> None:
    from tfs_proxy.serving.upstream.pooled_requests import PooledRequests

    PooledRequests(deployment.instances, servers.rest).install()


def _model_app(deployment: Deployment, workspace: Workspace, ledger: MemoryLedger) -> ContainerApp:
    from tfs_proxy.serving.script.load import load_script
    from tfs_proxy.serving.upstream.binary import BinaryUpstream
    from tfs_proxy.serving.upstream.recovery import Recovering

    servers = BinaryUpstream(deployment.instances, deployment.times.request_seconds, ledger.count)
    upstream = Recovering(servers, partial(settled, workspace.control_socket))
    if deployment.script:
        from tfs_proxy.serving.script.load import when_imported

        when_imported("requests", partial(_pool_requests, deployment, servers))
    script = load_script(deployment.script, deployment.import_paths) if deployment.script else None
    pass_on = upstream.patient(servers.rest.pass_on) if deployment.doors.rest_api else None
    of_control_api = partial(ping, workspace.control_socket)
    # The warm-up's requests do not reach scripts.
    own = None if script else create_app(deployment, upstream, ping=of_control_api, owns_upstream=False)
    call = first_call.begin(deployment, upstream, servers.rest.serves, own)
    app = create_app(
        deployment,
        upstream,
        script,
        ping=of_control_api,
        pass_on=pass_on,
        ledger=ledger,
        metrics=partial(metrics, workspace.control_socket),
        ask_control_api=partial(ask, workspace.control_socket),
        serves=servers.rest.serves,
    )
    app.first_call = call
    return app


def _many_models_app(deployment: Deployment, workspace: Workspace, ledger: MemoryLedger) -> ManyModelsApp:
    """Make one app for all models that come and go, which share connections to the model servers."""
    from tfs_proxy.serving.upstream.binary import BinaryUpstream
    from tfs_proxy.serving.upstream.recovery import Recovering

    servers = BinaryUpstream(deployment.instances, deployment.times.request_seconds, ledger.count)
    upstream = Recovering(servers, partial(settled, workspace.control_socket))

    def create(of_model: Deployment) -> ContainerApp:
        return create_app(
            of_model,
            upstream,
            ping=partial(ping, workspace.control_socket),
            pass_on=upstream.patient(servers.rest.pass_on) if of_model.doors.rest_api else None,
            ledger=ledger,
            serves=servers.rest.serves,
            owns_upstream=False,
        )

    app = ManyModelsApp(Path(deployment.many_models or ""), create, servers.rest.signatures.forget)
    app.held.callback(upstream.close)
    return app


def _script_model_app(deployment: Deployment, workspace: Workspace, ledger: MemoryLedger) -> ContainerApp:
    from tfs_proxy.serving.script.script_model import load_script_model

    script_model = load_script_model(deployment.script or "", deployment.import_paths)
    return create_app(
        deployment,
        None,
        script_model,
        ping=partial(ping, workspace.control_socket),
        ledger=ledger,
        metrics=partial(metrics, workspace.control_socket),
        ask_control_api=partial(ask, workspace.control_socket),
    )


def _created(workspace: Workspace) -> ContainerApp | ManyModelsApp:
    deployment = fetch_deployment(workspace.control_socket)
    ledger = MemoryLedger(workspace.memory_ledger, deployment.bodies.decoded_total_bytes)
    if deployment.many_models is not None:
        return _many_models_app(deployment, workspace, ledger)
    create = _model_app if deployment.script_model is None else _script_model_app
    return create(deployment, workspace, ledger)


app = _created(worker_workspace())
