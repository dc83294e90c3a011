"""The gRPC router's command line, as its own reader takes it."""

from pathlib import Path

from tfs_proxy.run.programs import grpc_router
from tfs_proxy.settings.settings import Settings
from tfs_proxy.settings.worker_environment import RouterOptions, read
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace


def test_the_router_reads_what_the_supervisor_writes() -> None:
    """Sockets of the run, limits of the settings."""
    settings = Settings.from_env(
        {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "3", "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "7.5"}
    )
    spec = grpc_router.process(settings, Workspace(Path("/run/a b")), 90, {"PATH": "/bin"})

    assert spec.env["PATH"] == "/bin"
    assert read(RouterOptions, spec.argv[-1]) == RouterOptions(
        socket="/run/a b/router.sock",
        control_socket="/run/a b/control.sock",
        requests="/run/a b/requests",
        loads=True,
        open_inference="model",
        message_bytes=3 << 20,
        decoded_bytes=12 << 20,
        wait_seconds=7.5,
        answer_seconds=90,
    )


def test_of_one_archive_nothing_is_loaded_by_a_call() -> None:
    deployment = Deployment("m", {"m": (1,)}, (), None, (), 1, 1.0, open_inference="script")

    words = grpc_router.process(Settings.from_env({}), Workspace(Path("/run")), 90, {}, deployment).argv

    options = read(RouterOptions, words[-1])
    assert (options.loads, options.open_inference) == (False, "script")
