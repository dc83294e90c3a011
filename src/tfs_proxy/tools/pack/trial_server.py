"""Runs a model server for a trial: like that of `serve`, alone, while a context lasts."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec.structs import replace

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.run.host.processes import before_exec
from tfs_proxy.run.model_states import ModelStates
from tfs_proxy.run.opening import ServeRequest, find_host_resources, plan_processes
from tfs_proxy.run.plan import ProcessPlan
from tfs_proxy.serving.upstream.grpc_channels import GrpcCalls
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.values.errors import ModelLoadError, StartTimeout
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.protobuf_writer import message_field
from tfs_proxy.wire.protos.predict import model_spec

LOG = "model-server.log"
NO_MODEL = "no-such-model"
LAST_LINES = 10
LOOK_SECONDS = 0.05
STOP_SECONDS = 10.0

Predict = Callable[[bytes], ModelAnswer]
"""Sends a serialized PredictRequest; raises what `GrpcCalls.predict` raises."""


@contextmanager
def trial_server(prepared: Prepared, workspace: Workspace, *, warms_up: bool) -> Iterator[Predict]:
    """Loads all versions, whatever the user's flags say with recorded requests if ``warms_up``, else without.

    Raises ModelLoadError with the model server's message if a version can't be loaded, and StartTimeout.
    """
    flag = f"--enable_model_warmup={str(warms_up).lower()}"
    settings = prepared.settings
    settings = settings.with_values(instance_count=1, extra_args=(*settings.extra_args, flag))
    prepared = replace(prepared, settings=settings)
    with ExitStack() as held:
        host = find_host_resources(ServeRequest(None, "auto", dict(inherited_environment())), prepared, held)
        planned = plan_processes(prepared, workspace, host, port=0, counts_requests=False)
        held.enter_context(_running(planned, workspace.root / LOG))
        instance = planned.deployment.instances[0]
        calls = GrpcCalls(settings.request_timeout_seconds)
        held.callback(calls.close)
        # This call opens the connection, even though it is refused.
        calls.predict(instance, message_field(1, [model_spec(NO_MODEL)]))
        yield lambda message: calls.predict(instance, [message])


@contextmanager
def _running(planned: ProcessPlan, log: Path) -> Iterator[None]:
    spec = planned.model_servers[0]
    with log.open("wb") as output:
        process = subprocess.Popen(
            spec.argv,
            env=dict(spec.env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=before_exec(spec.orphaned_signal),  # noqa: PLW1509 - no thread holds a lock
        )
    try:
        asyncio.run(_until_loaded(planned, process, log))
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _until_loaded(planned: ProcessPlan, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deployment = planned.deployment
    states = ModelStates()
    states.expect(deployment.instances, deployment.models)
    watching = asyncio.create_task(states.until_available())
    deadline = asyncio.get_running_loop().time() + deployment.times.load_seconds
    while not watching.done():
        await asyncio.wait({watching}, timeout=LOOK_SECONDS)
        if process.poll() is not None:
            watching.cancel()
            text = await asyncio.to_thread(log.read_text, errors="replace")
            last_lines = "\n".join(text.splitlines()[-LAST_LINES:])
            raise ModelLoadError(
                f"The model server ended with exit status {process.returncode}:\n{last_lines}"
            )
        if asyncio.get_running_loop().time() > deadline:
            watching.cancel()
            raise StartTimeout(f"not loaded within {deployment.times.load_seconds:g} s: {states.missing()}.")
    watching.result()
