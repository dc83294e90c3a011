"""argv and config builders: pure functions from settings to words and files."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tfs_proxy.model.discover import DiscoveredModel
from tfs_proxy.model.report.served import Served
from tfs_proxy.run import plan
from tfs_proxy.run.gpus import Placement
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.programs import gunicorn, model_server
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.values.resources import Resources

WORKSPACE = Workspace(Path("/run/tfs"))
INSTANCE = Instance(1, rest_port=8501, grpc_port=8500, grpc_socket="/run/tfs/tfs1.sock")


def settings(**environ: str) -> Settings:
    """Settings on a machine of two cores."""
    return Settings.from_env(environ, Resources(2))


def flags(
    configured: Settings, placement: Placement | None = None, *, script: bool = True, models: int = 1
) -> tuple[str, ...]:
    official = ("/usr/bin/tensorflow_model_server",)
    return model_server.argv(
        *(official, INSTANCE, configured, WORKSPACE.model_config, WORKSPACE.batching_config),
        placement=placement,
        script=script,
        models=models,
    )


@pytest.mark.parametrize(
    ("environ", "cores", "served", "threads"),
    [
        ({}, 2, {"script": False}, 16),
        ({}, 2, {"script": True}, 256),
        ({"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": "1"}, 2, {"script": True}, 16),
        ({}, 2, {"script": False, "models": 2}, 256),
        ({"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "9999"}, 2, {"script": False}, 1024),
    ],
)  # fmt: skip
def test_one_model_without_a_script_gets_few_rest_threads(
    environ: dict[str, str], cores: int, served: dict[str, int], threads: int
) -> None:
    """Each makes a request dearer; scripts, several models and batches have requests that wait for others."""
    configured = Settings.from_env(environ, Resources(cores))

    words = flags(configured, script=bool(served["script"]), models=served.get("models", 1))

    assert f"--rest_api_num_threads={threads}" in words


@pytest.mark.parametrize(
    ("environ", "resources", "threads"),
    [
        ({}, Resources(2), []),
        ({}, Resources(64, 1.5), ["inter_op_parallelism=2", "intra_op_parallelism=2"]),
        ({"SAGEMAKER_TFS_INTER_OP_PARALLELISM": "0"}, Resources(64, 1.5), ["intra_op_parallelism=2"]),
        (
            {"SAGEMAKER_TFS_INTER_OP_PARALLELISM": "-1"},
            Resources(4),
            ["inter_op_parallelism=-1", "intra_op_parallelism=4"],
        ),
        (
            {"SAGEMAKER_TFS_INTER_OP_PARALLELISM": "-1", "SAGEMAKER_TFS_INTRA_OP_PARALLELISM": "3"},
            Resources(4),
            ["inter_op_parallelism=-1", "intra_op_parallelism=3"],
        ),
    ],
)
def test_the_callers_thread_comes_with_a_number_of_intra_op_threads(
    environ: dict[str, str], resources: Resources, threads: list[str]
) -> None:
    """The official binary takes -1 only beside one; a CPU limit, which TensorFlow does not see, is told."""
    words = flags(Settings.from_env(environ, resources))

    assert [word.removeprefix("--tensorflow_") for word in words if "_op_" in word] == threads


def test_an_instance_sees_the_gpu_that_was_chosen_for_it() -> None:
    allowed, chosen = {"CUDA_VISIBLE_DEVICES": "4,6"}, Placement("GPU-b", 0.4)
    seen = model_server.environment(allowed, settings(), chosen)["CUDA_VISIBLE_DEVICES"]

    assert seen == "GPU-b"
    assert "--per_process_gpu_memory_fraction=0.4000" in flags(settings(), chosen)
    assert model_server.environment(allowed, settings(), None)["CUDA_VISIBLE_DEVICES"] == "4,6"


def test_the_model_config_quotes_names_and_sets_labels_where_the_version_is() -> None:
    """Paths with quotes, blanks and letters beyond ASCII stay one string of the text format."""
    models = [ServedModel("a", Path('/m/with "quote" é'), (1, 2)), ServedModel("b", Path("/m/b"), (2,))]

    text = model_server.model_config(models, {"stable": 1, "canary": 2})

    assert r'base_path: "/m/with \042quote\042 \303\251"' in text
    assert text.count('version_labels { key: "stable" value: 1 }') == 1
    assert text.count('version_labels { key: "canary" value: 2 }') == 2
    assert "specific { versions: 1 versions: 2 }" in text


def test_a_model_server_that_is_no_program_is_refused() -> None:
    """The error names the flag's value."""
    with pytest.raises(SettingsError, match="no-such-program"):
        model_server.program("no-such-program")


@pytest.mark.tensorflow
def test_the_embedded_server_under_the_official_name_is_the_embedded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images without the official binary have its name on PATH for other people's manifests."""
    folder = Path(__file__).parents[3] / "container"
    monkeypatch.setenv("PATH", str(folder))
    assert model_server.is_embedded(model_server.program("auto"))

    other = tmp_path / "tensorflow_model_server"
    other.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{folder}")
    assert model_server.program("auto") == (str(other),)


def test_workers_find_the_sockets_and_installed_packages() -> None:
    environ = {"PYTHONPATH": "/mine", "OMP_NUM_THREADS": "4", "MALLOC_ARENA_MAX": "8"}
    env = gunicorn.environment(environ, settings(), WORKSPACE, [Path("/packages")])

    assert env["PYTHONPATH"] == "/packages:/mine"
    assert "SCRIPT_NAME" not in gunicorn.environment({"SCRIPT_NAME": "/x"}, settings(), WORKSPACE, [])
    assert env["OMP_NUM_THREADS"] == "4"
    assert env["MALLOC_ARENA_MAX"] == "8"
    assert int(env["MALLOC_TRIM_THRESHOLD_"]) > 0
    assert env["TFS_PROXY_WORKSPACE"] == "/run/tfs"


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({}, "proxy_read_timeout 75s;"),
        ({"SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "90"}, "grpc_read_timeout 90s;"),
        ({"SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "20"}, "proxy_read_timeout 70s;"),
        ({"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "94.5"}, "proxy_read_timeout 110s;"),
        ({"SAGEMAKER_TFS_NGINX_LOGLEVEL": "debug"}, "error_log stderr info;"),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, "client_max_body_size 100m;"),
    ],
)
def test_nginx_is_configured_from_the_settings(environ: dict[str, str], line: str) -> None:
    """A worker timeout above nginx's lifts it, as in AWS's container (docs/reference/aws-container.md)."""
    assert nginx.config(GRPC, settings(**environ), WORKSPACE).count(line) == 1


GRPC = nginx.ProxyConfig("0.0.0.0:8080", ("127.0.0.1:4000",), WORKSPACE.control_socket, ("0.0.0.0:8500",))


@pytest.mark.parametrize(
    ("version", "lines", "never"),
    [
        ((0,), ["listen 0.0.0.0:8500 http2;"], "http2 on"),
        ((1, 25, 1), ["listen 0.0.0.0:8500;", "http2 on;"], "8500 http2"),
    ],
)
def test_nginx_is_told_of_http2_in_the_way_it_knows(
    version: tuple[int, ...], lines: list[str], never: str
) -> None:
    proxy = replace(GRPC, version=version)

    text = nginx.config(proxy, settings(), WORKSPACE)

    assert all(text.count(line) == 1 for line in lines)
    assert never not in text


@pytest.mark.parametrize(("accept", "fast"), [("application/json", True), ("text/csv", False)])
def test_a_default_accept_decides_whether_requests_may_pass_the_workers_by(accept: str, fast: bool) -> None:
    """The model server answers JSON alone, so where another type is the default, Python has to answer."""
    served = Served(ModelLayout(Path("/nowhere")), (DiscoveredModel("m", {1: Path("/m/1")}),), "m")
    configured = settings(SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT=accept)
    host = plan.HostResources(("server",), [(9000, 9001)], gpus=0, environ={})

    planned = plan.plan([ServedModel("m", Path("/m"), (1,))], served, configured, WORKSPACE, host)

    proxy = replace(GRPC, serving=planned.deployment)
    assert ("location @fast" in nginx.config(proxy, configured, WORKSPACE)) is fast
