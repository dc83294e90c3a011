"""The app that gunicorn runs: built in each worker from what the control door says."""

from functools import partial
from pathlib import Path

from tfs_proxy.script.load import load_script
from tfs_proxy.settings import WorkerEnvironment
from tfs_proxy.upstream.binary import BinaryUpstream
from tfs_proxy.upstream.instances import fetch_deployment, ping, settled
from tfs_proxy.upstream.recovery import Recovering
from tfs_proxy.web.app import create_app

door = Path(WorkerEnvironment.from_env().control_socket)
deployment = fetch_deployment(door)
servers = BinaryUpstream(deployment.instances, deployment.request_timeout_seconds)
upstream = Recovering(servers, partial(settled, door))
if deployment.script and deployment.pool_requests:
    from tfs_proxy.upstream.pooled_requests import PooledRequests

    PooledRequests(deployment.instances, servers.rest).install()
script = load_script(deployment.script, deployment.import_paths) if deployment.script else None
app = create_app(deployment, upstream, script, ping=partial(ping, door))
