"""Settings: every row of the table, and what an unusable value says."""

import pytest

from tfs_proxy.settings.parsers import (
    PLATFORM_PORTS,
    PLATFORM_VARIABLES,
    AccessLog,
    PortRange,
    Ports,
    for_inner_stack,
)
from tfs_proxy.settings.rows import unknown_variables
from tfs_proxy.settings.settings import TABLE, Settings
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.memory import MEGABYTE, MemoryBudget
from tfs_proxy.values.resources import Resources


@pytest.mark.parametrize(
    ("variable", "value", "field", "wanted"),
    [
        ("SAGEMAKER_SAFE_PORT_RANGE", "20000-20010", "safe_port_range", PortRange(20000, 20010)),
        ("SAGEMAKER_TFS_ENABLE_BATCHING", "True", "enable_batching", True),
        ("SAGEMAKER_TFS_EXTRA_ARGS", "--a=1 '--b=x y'", "extra_args", ("--a=1", "--b=x y")),
        ("SAGEMAKER_TFS_VERSION_LABELS", "stable=1, canary=2", "version_labels", {"stable": 1, "canary": 2}),
        ("TFS_PROXY_LOG_FORMAT", "JSON", "log_format", "json"),
        ("TFS_PROXY_ACCESS_LOG", "slow:500", "access_log", AccessLog("slow", milliseconds=500)),
        ("TFS_PROXY_ACCESS_LOG", "Sample:0.01", "access_log", AccessLog("sample", fraction=0.01)),
        ("TFS_PROXY_GRPC_PORT", "8500", "grpc_port", Ports((8500,), required=True)),
        ("TFS_PROXY_GRPC_PORT", "Auto", "grpc_port", Ports((8500,), required=False)),
        ("TFS_PROXY_EXTRA_PORTS", "Auto", "extra_ports", Ports((8501,), required=False)),
        ("TFS_PROXY_EXTRA_PORTS", "9001, 9000,9001", "extra_ports", Ports((9001, 9000), required=True)),
        ("TFS_PROXY_DOORS", "V1, v2-script", "doors", {"v1", "v2-script"}),
        ("TFS_PROXY_DOORS", "none", "doors", set()),
        ("TFS_PROXY_INSTALL_ENVIRONMENT", "A_B,C*", "install_environment", ("A_B", "C*")),
        ("TFS_PROXY_INSTALL_ENVIRONMENT", "All", "install_environment", ("*",)),
    ],
)
def test_a_variable_becomes_a_typed_field(variable: str, value: str, field: str, wanted: object) -> None:
    """Text from the environment arrives typed, and is listed as changed."""
    settings = Settings.from_env({variable: value})

    assert getattr(settings, field) == wanted
    assert settings.changed == {variable: value}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SAGEMAKER_BIND_TO_PORT", "70000"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9000"),
        ("TFS_PROXY_EXTRA_PORTS", "8501,"),
        ("TFS_PROXY_CAPTURE", "s3://bucket/prefix"),
        ("TFS_PROXY_CAPTURE_PERCENT", "100.01"),
        ("TFS_PROXY_CAPTURE_PERCENT", "5%"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9010-9000"),
        ("TFS_PROXY_ACCESS_LOG", "some"),
        ("TFS_PROXY_ACCESS_LOG", "slow:x"),
        ("TFS_PROXY_ACCESS_LOG", "sample:2"),
        ("TFS_PROXY_ACCESS_LOG", "all:1"),
        ("TFS_PROXY_INSTALL_ENVIRONMENT", "A=b"),
        ("CA_REPOSITORY_ARN", "arn:aws:codeartifact:eu-west-1:123456789012:domain/ours"),
        ("TFS_PROXY_GRPC_PORT", "on"),
        ("TFS_PROXY_DOORS", "none,v1"),
        ("TFS_PROXY_DOORS", "rest"),
        ("SAGEMAKER_TFS_INTER_OP_PARALLELISM", "-2"),
        ("SAGEMAKER_TFS_INSTANCE_COUNT", "0"),
        ("SAGEMAKER_TFS_MAX_BATCH_SIZE", "1.5"),
        ("SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN", "2"),
        ("SAGEMAKER_TFS_EXTRA_ARGS", "--a='unfinished"),
        ("SAGEMAKER_TFS_VERSION_LABELS", "stable"),
        ("SAGEMAKER_TFS_VERSION_LABELS", "stable=1,stable=2"),
        ("SAGEMAKER_GUNICORN_LOGLEVEL", "loud"),
        ("SAGEMAKER_TFS_WAIT_TIME_SECONDS", "nan"),
        ("SAGEMAKER_GUNICORN_WORKERS", "٣٣"),
        ("SAGEMAKER_BATCH", "maybe"),
        ("SAGEMAKER_PROGRAM", "../inference.py"),
        ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "csv"),
        ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "*/*, text/csv"),
    ],
)
def test_an_unusable_value_is_named_with_its_variable(variable: str, value: str) -> None:
    """The error has the variable, the value and what would do instead."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({variable: value})

    assert f"{variable}={value}" in str(caught.value)
    assert "must be" in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "level"),
    [
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "40"}, "error"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "DEBUG", "SAGEMAKER_GUNICORN_LOGLEVEL": ""}, "debug"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "10", "SAGEMAKER_GUNICORN_LOGLEVEL": "warning"}, "warning"),
    ],
)
def test_the_log_level_that_sagemaker_s_sdk_sets_counts_if_ours_is_unset(
    environ: dict[str, str], level: str
) -> None:
    """As a number of Python's logging, or as a name."""
    assert Settings.from_env(environ).gunicorn_loglevel == level


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, (60, 65, 70, 75)),
        ({"SAGEMAKER_BATCH": "true"}, (3600, 3605, 3610, 3615)),
        ({"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "94.5"}, (94.5, 99.5, 105, 110)),
        ({"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "3"}, (3, 6, 11, 16)),
        ({"SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "300"}, (60, 295, 300, 305)),
        ({"SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "300"}, (60, 290, 295, 300)),
        ({"SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "20"}, (60, 65, 70, 20)),
    ],
)
def test_timeouts_are_in_the_order_of_who_knows_most(
    environ: dict[str, str], seconds: tuple[float, ...]
) -> None:
    """Model server, script, gunicorn, nginx: a user's value stays, the others follow it."""
    settings = Settings.from_env(environ)

    assert seconds == (
        settings.request_timeout_seconds,
        settings.script_timeout_seconds,
        settings.gunicorn_timeout_seconds,
        settings.nginx_proxy_read_timeout_seconds,
    )


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        ({}, 0),
        ({"SAGEMAKER_BATCH": "true"}, 1),
        ({"SAGEMAKER_BATCH": "true", "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "4"}, 1),
        ({"SAGEMAKER_BATCH": "true", "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "3"}, 0),
        ({"SAGEMAKER_BATCH": "true", "SAGEMAKER_TFS_INTRA_OP_PARALLELISM": "2"}, 2),
        ({"SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "4"}, 0),
    ],
)
def test_a_batch_job_that_fills_all_cores_needs_no_threads_within_a_request(
    environ: dict[str, str], threads: int
) -> None:
    """On four cores: one intra-op thread where at least four requests run at a time."""
    assert Settings.from_env(environ, Resources(4)).intra_op_parallelism == threads


def test_unknown_variables_that_look_like_ours_are_found() -> None:
    """A misspelt name is worth telling."""
    assert unknown_variables(
        {"SAGEMAKER_TFS_WAIT_TIME": "3", "HOME": "/", "SAGEMAKER_BATCH": "true"}, TABLE
    ) == ["SAGEMAKER_TFS_WAIT_TIME"]


def test_variables_of_kubernetes_services_count_as_unset() -> None:
    """Services tfs-proxy and tfs-proxy-grpc beside a pod change no setting, and the image's value holds."""
    address = "tcp://10.96.1.3:8500"
    environ = {
        "TFS_PROXY_PORT": address,
        "TFS_PROXY_PORT_8500_TCP": address,
        "TFS_PROXY_PORT_8500_TCP_ADDR": "10.96.1.3",
        "TFS_PROXY_PORT_8500_TCP_PORT": "8500",
        "TFS_PROXY_PORT_8500_TCP_PROTO": "tcp",
        "TFS_PROXY_SERVICE_HOST": "10.96.1.3",
        "TFS_PROXY_SERVICE_PORT": "80",
        "TFS_PROXY_SERVICE_PORT_HTTP": "80",
        "TFS_PROXY_GRPC_PORT": address,
        "TFS_PROXY_GRPC_SERVICE_HOST": "10.96.1.3",
        "SAGEMAKER_BIND_TO_PORT": "udp://[fd00::3]:53",
    }

    settings = Settings.from_env(environ)

    assert unknown_variables(environ, TABLE) == []
    assert (settings.port, settings.grpc_port) == (8080, Ports((8500,), required=False))


def test_every_setting_has_help_and_a_variable_of_its_own() -> None:
    """The page of settings is written from the table."""
    assert len({row.variable for row in TABLE}) == len(TABLE)
    assert all(row.help and not row.help.endswith(".") for row in TABLE)


@pytest.mark.parametrize("variable", PLATFORM_VARIABLES)
@pytest.mark.parametrize(("choice", "published"), [("auto", False), ("9500", True), ("off", False)])
def test_the_usual_ports_are_left_alone_on_sagemaker(variable: str, choice: str, published: bool) -> None:
    """Containers of a pipeline share their ports; whoever names one gets it all the same."""
    value = {"SAGEMAKER_SAFE_PORT_RANGE": "9000-9009", "SAGEMAKER_BIND_TO_PORT": "8080"}.get(variable, "true")
    ports = {"TFS_PROXY_GRPC_PORT": choice, "TFS_PROXY_EXTRA_PORTS": choice}

    settings = Settings.from_env({**ports, variable: value})

    assert (settings.grpc_port is not None) == published
    if variable in PLATFORM_PORTS:
        assert (settings.extra_ports is not None) == published


def test_a_stack_behind_another_program_publishes_no_grpc_captures_nothing_and_has_no_tls() -> None:
    """The stages of a pipeline, and the stack of a batch job; none has extra ports either."""
    environ = {
        "TFS_PROXY_GRPC_PORT": "8500",
        "TFS_PROXY_EXTRA_PORTS": "auto",
        "TFS_PROXY_CAPTURE": "records",
        "TFS_PROXY_TLS_KEY": "tls.key",
        "A": "b",
    }
    assert for_inner_stack(environ) == {"A": "b"}


TLS = {"TFS_PROXY_TLS_CERTIFICATE": "tls.crt", "TFS_PROXY_TLS_KEY": "tls.key"}


@pytest.mark.parametrize(
    ("environ", "refused"),
    [
        ({**TLS, "SAGEMAKER_BIND_TO_PORT": "8080"}, "CERTIFICATE can't be used with SAGEMAKER_BIND_TO_PORT"),
        ({**TLS, "SAGEMAKER_BATCH": "true"}, "CERTIFICATE can't be used with SAGEMAKER_BATCH"),
        ({"TFS_PROXY_TLS_KEY": "k"}, "KEY can't be used without TFS_PROXY_TLS_CERTIFICATE: set both."),
        ({"TFS_PROXY_TLS_CERTIFICATE": "c"}, "CERTIFICATE can't be used without TFS_PROXY_TLS_KEY"),
        ({"TFS_PROXY_TLS_CLIENT_CA": "c"}, "CLIENT_CA can't be used without TFS_PROXY_TLS_CERTIFICATE"),
        ({"SAGEMAKER_SAFE_PORT_RANGE": "9000-9003", "SAGEMAKER_TFS_INSTANCE_COUNT": "3"}, "6 ports"),
        (
            {"SAGEMAKER_SAFE_PORT_RANGE": "9000-9009", "TFS_PROXY_GRPC_PORT": "9005"},
            "PORT=9005 can't be used",
        ),
        ({"SAGEMAKER_GUNICORN_WORKER_CLASS": "eventlet"}, "take gevent"),
        ({"SAGEMAKER_GUNICORN_WORKER_CLASS": "tornado"}, "take gthread"),
    ],
)
def test_values_that_do_not_go_together_say_what_to_do(environ: dict[str, str], refused: str) -> None:
    """Also those of AWS's container that are gone."""
    with pytest.raises(SettingsError, match=refused):
        Settings.from_env(environ)


def test_credentials_of_a_role_are_not_sagemaker() -> None:
    """ECS gives them, too."""
    assert Settings.from_env({**TLS, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/c"}).secured == TLS


def test_defaults_follow_the_cpu_limit() -> None:
    """Workers, batch threads and TensorFlow's pools, which see 64 cores, count the two of the limit."""
    settings = Settings.from_env({}, resources=Resources(64, 1.5))

    assert (settings.gunicorn_workers, settings.gunicorn_threads) == (2, 128)
    assert settings.num_batch_threads == 2
    assert (settings.intra_op_parallelism, settings.machine.tensorflow_threads) == (2, 2)
    batch = Settings.from_env({"SAGEMAKER_BATCH": "true"}, resources=Resources(64, 1.5))
    assert (batch.intra_op_parallelism, batch.max_enqueued_batches) == (1, 100_000_000)


def test_decoded_bodies_take_half_of_what_models_and_workers_leave() -> None:
    """4 GB are enough for 28 MB of short numbers; a container without memory takes one body as it comes."""
    settings = Settings.from_env({}, resources=Resources(2, None, 4096 * MEGABYTE)).sized_for(100 * MEGABYTE)
    small = Settings.from_env({}, resources=Resources(2, None, 512 * MEGABYTE)).sized_for(100 * MEGABYTE)
    given = Settings.from_env({"TFS_PROXY_MAX_DECODED_TOTAL_MB": "7"}, resources=Resources(2))

    limit = settings.max_decoded_bytes
    MemoryBudget(limit).take_json(b"[%b1]" % (b"1," * 14_000_000))
    MemoryBudget(limit).take_parsed(b"[%b1]" % (b"1," * 14_000_000))
    assert limit == (4096 - 100 - 365 - 2 * 100 - 2 * 150) * MEGABYTE // 2
    assert (small.max_decoded_bytes, given.max_decoded_bytes) == (100 * MEGABYTE, 7 * MEGABYTE)


def test_workers_become_fewer_once_the_size_of_the_models_is_known() -> None:
    """64 cores and 2 GB: 12 workers at most, 3 beside a model of 512 MB; a number that is set stays."""
    resources = Resources(64, None, 2048 * MEGABYTE)
    settings = Settings.from_env({}, resources=resources)
    given = Settings.from_env({"SAGEMAKER_GUNICORN_WORKERS": "13"}, resources=resources)

    sized = settings.sized_for(512 * MEGABYTE)
    assert (settings.gunicorn_workers, settings.gunicorn_threads) == (12, 21)
    assert (sized.gunicorn_workers, sized.gunicorn_threads) == (3, 85)
    assert given.sized_for(512 * MEGABYTE).gunicorn_workers == 13
