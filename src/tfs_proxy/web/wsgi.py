"""The app that gunicorn runs: built in each worker from what the control API says."""

from functools import partial
from pathlib import Path

from tfs_proxy.deployment import Deployment
from tfs_proxy.upstream.instances import fetch_deployment, ping, settled
from tfs_proxy.web.app import ContainerApp, create_app, create_script_model_app
from tfs_proxy.worker_environment import worker_workspace


def _model_app(deployment: Deployment, control_socket: Path) -> ContainerApp:
    from tfs_proxy.script.load import load_script
    from tfs_proxy.upstream.binary import BinaryUpstream
    from tfs_proxy.upstream.recovery import Recovering

    servers = BinaryUpstream(deployment.instances, deployment.request_timeout_seconds)
    upstream = Recovering(servers, partial(settled, control_socket))
    if deployment.script and deployment.pool_requests:
        from tfs_proxy.upstream.pooled_requests import PooledRequests

        PooledRequests(deployment.instances, servers.rest).install()
    script = load_script(deployment.script, deployment.import_paths) if deployment.script else None
    pass_on = upstream.patient(servers.rest.pass_on) if deployment.rest_api else None
    return create_app(deployment, upstream, script, ping=partial(ping, control_socket), pass_on=pass_on)


def _script_model_app(deployment: Deployment, control_socket: Path) -> ContainerApp:
    from tfs_proxy.script.script_model.call import load_script_model

    script_model = load_script_model(deployment.script or "", deployment.import_paths)
    return create_script_model_app(deployment, script_model, ping=partial(ping, control_socket))


def _created(control_socket: Path) -> ContainerApp:
    deployment = fetch_deployment(control_socket)
    create = _model_app if deployment.script_model is None else _script_model_app
    return create(deployment, control_socket)


app = _created(worker_workspace().control_socket)
