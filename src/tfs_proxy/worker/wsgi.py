"""App that gunicorn runs: built in each worker from the control API's deployment."""

from functools import partial
from pathlib import Path

from tfs_proxy.serving.upstream.instances import ask, fetch_deployment, settled
from tfs_proxy.settings.worker_environment import worker_workspace
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.worker import first_call
from tfs_proxy.worker.app import ContainerApp, create_app
from tfs_proxy.worker.many_models import ManyModelsApp
from tfs_proxy.worker.memory_ledger import WAIT_SECONDS, MemoryLedger


def _created(workspace: Workspace) -> ContainerApp | ManyModelsApp:
    control = workspace.control_socket
    deployment = fetch_deployment(workspace.control_socket)
    times = deployment.times
    decoded_bytes = deployment.bodies.decoded_bytes
    ledger = MemoryLedger(workspace.memory_ledger, decoded_bytes, min(WAIT_SECONDS, times.wait_seconds))
    create = partial(create_app, ledger=ledger)
    create_whole = partial(create, ask_control_api=partial(ask, control))
    if deployment.script_model is not None:
        from tfs_proxy.serving.script.script_model import load_script_model

        return create_whole(
            deployment, None, load_script_model(deployment.script or "", deployment.import_paths)
        )
    from tfs_proxy.serving.upstream.binary import BinaryUpstream
    from tfs_proxy.serving.upstream.recovery import Recovering

    servers = BinaryUpstream(deployment.instances, times.request_seconds, ledger.count)
    upstream = Recovering(servers, partial(settled, control), times)
    pass_on = upstream.patient(servers.pass_on)
    serves = servers.serves
    if deployment.many_models is not None:

        def create_one(one: Deployment) -> ContainerApp:
            published = pass_on if one.doors.rest_api else None
            return create(one, upstream, pass_on=published, serves=serves, owns_upstream=False)

        many = ManyModelsApp(Path(deployment.many_models), create_one, servers.signatures.forget)
        many.held.callback(upstream.close)
        return many
    script = None
    if deployment.script:
        from tfs_proxy.serving.script.load import load_script, when_imported

        def pool_requests() -> None:
            from tfs_proxy.serving.upstream.pooled_requests import PooledRequests

            PooledRequests(deployment.instances, servers).install()

        when_imported("requests", pool_requests)
        script = load_script(deployment.script, deployment.import_paths)
    # The warm-up's requests do not reach scripts.
    own = None if script else create(deployment, upstream, ledger=None, owns_upstream=False)
    call = first_call.begin(deployment, upstream, serves, own)
    published = pass_on if deployment.doors.rest_api else None
    whole = create_whole(deployment, upstream, script, pass_on=published, serves=serves)
    whole.first_call = call
    return whole


app = _created(worker_workspace())
