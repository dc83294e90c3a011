"""The gRPC router's command line, as its own reader takes it."""

from pathlib import Path

from tfs_proxy.run.programs import grpc_router
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.worker.router.options import RouterOptions, read_options


def test_the_router_reads_what_the_supervisor_writes() -> None:
    """Sockets of the run, limits of the settings."""
    settings = Settings.from_env(
        {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "3", "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "7.5"}
    )
    spec = grpc_router.process(settings, Workspace(Path("/run/a b")), 90, {"PATH": "/bin"})

    module = spec.argv.index(grpc_router.PROGRAM)
    assert spec.env["PATH"] == "/bin"
    assert read_options(spec.argv[module + 1 :]) == RouterOptions(
        socket=Path("/run/a b/router.sock"),
        control_socket=Path("/run/a b/control.sock"),
        requests=Path("/run/a b/requests"),
        loads=True,
        message_bytes=3 << 20,
        decoded_bytes=12 << 20,
        wait_seconds=7.5,
        answer_seconds=90,
    )


def test_of_one_archive_nothing_is_loaded_by_a_call() -> None:
    deployment = Deployment("m", {"m": (1,)}, (), None, (), 1, 1.0, open_inference="script")

    words = grpc_router.process(Settings.from_env({}), Workspace(Path("/run")), 90, {}, deployment).argv

    options = read_options(words[words.index(grpc_router.PROGRAM) + 1 :])
    assert (options.loads, options.open_inference) == (False, "script")
