"""The gRPC router's command line, as its own reader takes it."""

from pathlib import Path

from tfs_proxy.deployment import Deployment, Instance
from tfs_proxy.grpc_router.options import RouterOptions, read_options
from tfs_proxy.layout import Workspace
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.programs import grpc_router


def test_the_router_reads_what_the_supervisor_writes() -> None:
    """Sockets of the run, limits of the settings."""
    settings = Settings.from_env(
        {
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": "3",
            "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "7.5",
            "SAGEMAKER_TFS_INSTANCE_COUNT": "2",
        }
    )
    spec = grpc_router.process(settings, Workspace(Path("/run/a b")), 90, {"PATH": "/bin"})

    module = spec.argv.index(grpc_router.PROGRAM)
    assert spec.env["PATH"] == "/bin"
    assert read_options(spec.argv[module + 1 :]) == RouterOptions(
        socket=Path("/run/a b/router.sock"),
        gates=Path("/run/a b/g"),
        control_socket=Path("/run/a b/control.sock"),
        requests=Path("/run/a b/requests"),
        instances=2,
        message_bytes=3 << 20,
        decoded_bytes=12 << 20,
        wait_seconds=7.5,
        answer_seconds=90,
    )


def test_of_one_archive_all_models_are_behind_the_same_gates() -> None:
    """One for each model server; who answers is what the deployment says."""
    instances = tuple(
        Instance(index, rest_port=1, grpc_port=2, grpc_socket=f"/run/tfs{index}.sock") for index in range(2)
    )
    deployment = Deployment("m", {"m": (1,)}, instances, None, (), 1, 1.0, open_inference="script")
    workspace = Workspace(Path("/run"))

    words = grpc_router.process(Settings.from_env({}), workspace, 90, {}, deployment).argv

    options = read_options(words[words.index(grpc_router.PROGRAM) + 1 :])
    assert options.gates is None
    assert options.shared_gates == (Path("/run/gate0.sock"), Path("/run/gate1.sock"))
    assert options.open_inference == "script"
