"""Environment -> Settings: the only reader of the environment, first step of start-up.

Every setting stands once, in `TABLE`: field, variable, parser, default and help. The README's table
is checked against it by a test. Names and meanings of ``SAGEMAKER_*`` are those of AWS's container
(contract 2.1); where a default differs, ``aws`` says what AWS's is.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tfs_proxy.errors import SettingsError
from tfs_proxy.resources import Machine, Resources, available_resources
from tfs_proxy.setting_values import (
    HIGHEST_PORT,
    GrpcPort,
    PortRange,
    flag,
    grpc_port,
    labels,
    media_type,
    model_name,
    number,
    one_of,
    port_range,
    script_name,
    text,
    thread_counts,
    whole,
    words,
    worker_class,
)

CONCURRENCY = 256
"""Requests that a run can have in flight by default: a model that waits must not hold the others up."""

SCRIPT_MARGIN_SECONDS = 5.0
OTHERS_WAIT = ("request_timeout_seconds", "gunicorn_timeout_seconds", "nginx_proxy_read_timeout_seconds")
"""A script has this much longer than all that wait for it or for the model server, unless it is told."""

MEGABYTE = 1024 * 1024
GIGABYTE = 1024 * MEGABYTE
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
NGINX_LOG_LEVELS = ("debug", "info", "notice", "warn", "error", "crit", "alert", "emerg")
PLATFORM_VARIABLES = (
    "SAGEMAKER_BIND_TO_PORT",
    "SAGEMAKER_SAFE_PORT_RANGE",
    "SAGEMAKER_MULTI_MODEL",
    "SAGEMAKER_BATCH",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
"""What a platform sets that opens one port alone, or has containers share them (contract 1.1)."""

SERVING_VARIABLES = ("MODEL_NAME", "MODEL_BASE_PATH")
"""They count only where the image stands in for tensorflow/serving; elsewhere they may be a script's own."""

WORKER_VARIABLES = (
    "TFS_PROXY_CONTROL_SOCKET",
    "TFS_PROXY_HEARTBEAT_SOCKET",
    "TFS_PROXY_WORKER_SOCKETS_FILE",
    "TFS_PROXY_JOURNAL_FOLDER",
)
"""How the supervisor tells workers where its sockets and their records are; no settings of the user's."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    ``default`` may depend on the machine: then it is a function of `Machine`, and ``shown`` says so
    in words. ``aws`` is AWS's default where ours differs.
    """

    field: str
    variable: str
    parse: Callable[[str], Any]
    default: Any
    help: str
    shown: str = ""
    aws: str = ""

    @property
    def default_text(self) -> str:
        """The default as the README shows it."""
        if self.shown:
            return self.shown
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return "" if self.default is None else f"{self.default}"


# fmt: off
TABLE: tuple[Setting, ...] = (
    Setting("port", "SAGEMAKER_BIND_TO_PORT", whole(0, HIGHEST_PORT), 8080,
            "port of the HTTP front; 0 takes a free one"),
    Setting("safe_port_range", "SAGEMAKER_SAFE_PORT_RANGE", port_range, None,
            "ports for the model servers, LOW-HIGH: instance i takes LOW+2i for gRPC and LOW+2i+1 for REST",
            shown="free loopback ports", aws="gRPC 9000, REST 8501"),
    Setting("rest_api", "TFS_PROXY_REST_API", flag, True,
            "publish TF Serving's REST API under /v1/ on the HTTP front"),
    Setting("grpc_port", "TFS_PROXY_GRPC_PORT", grpc_port, None,
            "port of TF Serving's gRPC API, 0 takes a free one; auto is 8500, if free and not on SageMaker",
            shown="off; auto in the images"),
    Setting("multi_model", "SAGEMAKER_MULTI_MODEL", flag, False,
            "multi-model mode; this version serves one archive and refuses true"),
    Setting("model", "SAGEMAKER_MODEL_URI", text, None,
            "archive, folder or s3:// address to serve when the command names none", shown="/opt/ml/model"),
    Setting("model_name", "TFS_PROXY_MODEL_NAME", model_name, None,
            "name of the model, if there is only one", shown="the folder's name"),
    Setting("serving_model_name", "MODEL_NAME", text, None,
            "name of the model and of its folder, where the image stands in for tensorflow/serving",
            shown="model, else the only one there is"),
    Setting("serving_base_path", "MODEL_BASE_PATH", text, None,
            "folder of the models' folders, where the image stands in for tensorflow/serving",
            shown="/models"),
    Setting("default_model_name", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME", text, None,
            "model that requests without tfs-model-name are for",
            shown="the only model, else the first by name", aws="the first found"),
    Setting("program", "SAGEMAKER_PROGRAM", script_name, "inference.py",
            "the script, below code/; inference.py where there is none of that name", aws="ignored"),
    Setting("default_accept", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", media_type, None,
            "the answer's type where the client does not say: no Accept, or */*", shown="application/json",
            aws="ignored"),
    Setting("version_labels", "SAGEMAKER_TFS_VERSION_LABELS", labels, {},
            "version labels, as stable=1,canary=2, for every model that has the version", shown="none"),
    Setting("instance_count", "SAGEMAKER_TFS_INSTANCE_COUNT", whole(1, 128), 1, "model-server processes"),
    Setting("inter_op_parallelism", "SAGEMAKER_TFS_INTER_OP_PARALLELISM", whole(0),
            lambda machine: machine.tensorflow_threads,
            "TensorFlow's inter-op threads; 0 leaves the choice to it",
            shown="0; cores under a CPU limit", aws="0"),
    Setting("intra_op_parallelism", "SAGEMAKER_TFS_INTRA_OP_PARALLELISM", whole(0),
            lambda machine: 1 if machine.busy else machine.tensorflow_threads,
            "TensorFlow's intra-op threads; 0 leaves the choice to it",
            shown="0; cores under a CPU limit; 1 in a batch job of as many requests at a time as cores",
            aws="0"),
    Setting("gpu_memory_margin", "SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN", number(0, 1), 0.2,
            "share of a GPU's memory left free when several instances are on it"),
    Setting("enable_batching", "SAGEMAKER_TFS_ENABLE_BATCHING", flag, False,
            "batch requests in the model server"),
    Setting("max_batch_size", "SAGEMAKER_TFS_MAX_BATCH_SIZE", whole(1), 8, "records in a batch at most"),
    Setting("batch_timeout_micros", "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS", whole(0), 1000,
            "µs to wait for a batch to fill"),
    Setting("num_batch_threads", "SAGEMAKER_TFS_NUM_BATCH_THREADS", whole(1), lambda machine: machine.cores,
            "batches run at the same time", shown="cores"),
    Setting("max_enqueued_batches", "SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES", whole(1),
            lambda machine: 100_000_000 if machine.batch else 1000,
            "batches waiting before requests are refused with 503", shown="1000; 100000000 in a batch job",
            aws="cores; 100000000 in a batch job"),
    Setting("extra_args", "SAGEMAKER_TFS_EXTRA_ARGS", words, (),
            "further flags for the model server, quoted as in a shell", shown="none"),
    Setting("wait_time_seconds", "SAGEMAKER_TFS_WAIT_TIME_SECONDS", number(1, 86400), 300.0,
            "s until every model version must be loaded", aws="60, and also the request timeout"),
    Setting("request_timeout_seconds", "TFS_PROXY_REQUEST_TIMEOUT_SECONDS", number(1, 86400),
            lambda machine: 3600.0 if machine.batch else 60.0,
            "s that one call to the model server may take", shown="60; 3600 in a batch job"),
    Setting("script_timeout_seconds", "TFS_PROXY_SCRIPT_TIMEOUT_SECONDS", number(1, 86400), None,
            "s that the script may take from its call to the head of its answer, calls of the model server "
            "included, and for each piece of a streamed body",
            shown="the longest of the request, gunicorn and nginx read timeouts, and 5 more", aws="no limit"),
    Setting("pipeline_timeout_seconds", "TFS_PROXY_PIPELINE_TIMEOUT_SECONDS", number(1, 86400),
            lambda machine: 3600.0 if machine.batch else 60.0,
            "s that a request may take through all stages of a pipeline", shown="60; 3600 in a batch job"),
    Setting("hop_limit_bytes", "TFS_PROXY_HOP_LIMIT_MB", lambda value: int(number(0.001)(value) * MEGABYTE),
            5 * MEGABYTE, "MB that go from one stage of a pipeline to the next", shown="5"),
    Setting("pool_requests", "TFS_PROXY_POOL_REQUESTS", flag, True,
            "serve a script's requests.post(context.rest_uri) over the worker's kept connections"),
    Setting("gunicorn_workers", "SAGEMAKER_GUNICORN_WORKERS", whole(1, 1024),
            lambda machine: machine.workers.count, "worker processes that run the script",
            shown="cores, or as many as memory holds", aws="1"),
    Setting("gunicorn_threads", "SAGEMAKER_GUNICORN_THREADS", whole(1, 4096),
            lambda machine: max(8, CONCURRENCY // machine.workers.count),
            "threads of each gthread worker: requests that wait for a model cost no more than one",
            shown="256 / default workers, at least 8", aws="1"),
    Setting("gunicorn_worker_class", "SAGEMAKER_GUNICORN_WORKER_CLASS", worker_class, "gthread",
            "gthread, sync, gevent or tornado", aws="gevent"),
    Setting("gunicorn_loglevel", "SAGEMAKER_GUNICORN_LOGLEVEL", one_of(*LOG_LEVELS), "info",
            "log level of the workers and of this program; debug shows how gunicorn and TensorFlow start"),
    Setting("gunicorn_timeout_seconds", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS", whole(1, 86400),
            lambda machine: 3600 if machine.batch else 60,
            "s without a sign of life before a worker is replaced", shown="60; 3600 in a batch job",
            aws="30"),
    Setting("nginx_proxy_read_timeout_seconds", "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS",
            whole(1, 86400), 60, "s that nginx waits for an answer; the workers' timeout if that is longer"),
    Setting("nginx_loglevel", "SAGEMAKER_TFS_NGINX_LOGLEVEL", one_of(*NGINX_LOG_LEVELS), "error",
            "log level of nginx"),
    Setting("nginx", "TFS_PROXY_NGINX", flag, True,
            "put nginx in front where it is installed; false lets the workers listen on the port themselves"),
    Setting("max_payload_mb", "SAGEMAKER_MAX_PAYLOAD_IN_MB", whole(0, 100_000), 100,
            "MB that a request body may have; 0 as 100", aws="no limit"),
    Setting("batch", "SAGEMAKER_BATCH", flag, False, "set by SageMaker in a batch transform job"),
    Setting("max_concurrent_transforms", "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", whole(0), None,
            "requests at a time of a batch transform job; set by SageMaker", shown="not said", aws="ignored"),
    Setting("omp_num_threads", "OMP_NUM_THREADS", thread_counts, "1",
            "OpenMP threads in the workers and model servers"),
    Setting("stop_seconds", "TFS_PROXY_STOP_SECONDS", number(0, 86400), 25.0,
            "s that requests in flight have to finish after SIGTERM"),
    Setting("home", "TFS_PROXY_HOME", text, None, "folder that everything written goes below",
            shown="the system's temporary folder"),
    Setting("max_archive_bytes", "TFS_PROXY_MAX_ARCHIVE_GB",
            lambda value: int(number(0.001)(value) * GIGABYTE), 100 * GIGABYTE,
            "GB that an archive may unpack to", shown="100"),
    Setting("max_archive_members", "TFS_PROXY_MAX_ARCHIVE_MEMBERS", whole(1), 100_000,
            "files and folders that an archive may hold"),
    Setting("max_archive_ratio", "TFS_PROXY_MAX_ARCHIVE_RATIO", number(1), 100.0,
            "unpacked size over packed size that an archive may reach, looked at past 1 GB unpacked"),
)
# fmt: on


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Every setting of one run, typed.

    ``changed`` lists the variables whose values are not the defaults, ``given`` those that are set at all;
    ``machine`` is what the defaults are taken from.
    """

    port: int
    safe_port_range: PortRange | None
    rest_api: bool
    grpc_port: GrpcPort | None
    multi_model: bool
    model: str | None
    model_name: str | None
    serving_model_name: str | None
    serving_base_path: str | None
    default_model_name: str | None
    program: str
    default_accept: str | None
    version_labels: Mapping[str, int]
    instance_count: int
    inter_op_parallelism: int
    intra_op_parallelism: int
    gpu_memory_margin: float
    enable_batching: bool
    max_batch_size: int
    batch_timeout_micros: int
    num_batch_threads: int
    max_enqueued_batches: int
    extra_args: tuple[str, ...]
    wait_time_seconds: float
    request_timeout_seconds: float
    script_timeout_seconds: float
    pipeline_timeout_seconds: float
    hop_limit_bytes: int
    pool_requests: bool
    gunicorn_workers: int
    gunicorn_threads: int
    gunicorn_worker_class: str
    gunicorn_loglevel: str
    gunicorn_timeout_seconds: int
    nginx_proxy_read_timeout_seconds: int
    nginx_loglevel: str
    nginx: bool
    max_payload_mb: int
    batch: bool
    max_concurrent_transforms: int | None
    omp_num_threads: str
    stop_seconds: float
    home: str | None
    max_archive_bytes: int
    max_archive_members: int
    max_archive_ratio: float
    machine: Machine
    changed: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        cores: int | None = None,
        resources: Resources | None = None,
    ) -> "Settings":
        """Read all of `TABLE` from ``environ`` (default: the process's own).

        Defaults come from ``resources`` (default: those of this process); ``cores`` stands for so many
        without limits. An empty value counts as unset. Raises SettingsError naming variable and value.
        """
        environ = os.environ if environ is None else environ
        batch = _read(_row("batch"), environ.get("SAGEMAKER_BATCH", ""))
        concurrent = _read(
            _row("max_concurrent_transforms"), environ.get("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", "")
        )
        if resources is None:
            resources = available_resources() if cores is None else Resources(cores)
        machine = Machine(resources, batch, concurrent or None)
        values: dict[str, Any] = {}
        changed: dict[str, str] = {}
        for row in TABLE:
            raw = environ.get(row.variable, "")
            default = row.default(machine) if callable(row.default) else row.default
            values[row.field] = _read(row, raw) if raw.strip() else default
            if raw.strip() and values[row.field] != default:
                changed[row.variable] = raw
        grpc = values["grpc_port"]
        if grpc is not None and not grpc.required and on_platform(environ):
            values["grpc_port"] = None
        if values["script_timeout_seconds"] is None:
            longest_seconds = max(values[name] for name in OTHERS_WAIT)
            values["script_timeout_seconds"] = longest_seconds + SCRIPT_MARGIN_SECONDS
        given = frozenset(row.variable for row in TABLE if environ.get(row.variable, "").strip())
        settings = cls(**values, machine=machine, changed=changed, given=given)
        settings.check_ports()
        return settings

    def sized_for(self, models_bytes: int) -> "Settings":
        """These settings, with the defaults that depend on the size of the models on disk."""
        machine = replace(self.machine, models_bytes=models_bytes)
        sized = {
            row.field: row.default(machine)
            for row in (_row("gunicorn_workers"), _row("gunicorn_threads"))
            if row.variable not in self.given
        }
        return replace(self, machine=machine, **sized)

    def check_ports(self) -> None:
        """Raise SettingsError where the port range is too small (contract 2.1), or holds the gRPC port."""
        ports = self.safe_port_range
        if ports is not None and ports.low + 2 * self.instance_count - 1 > ports.high:
            raise SettingsError(
                f"SAGEMAKER_SAFE_PORT_RANGE={ports.low}-{ports.high} is too small: "
                f"{self.instance_count} model server(s) need {2 * self.instance_count} ports."
            )
        grpc = self.grpc_port
        if ports is not None and grpc is not None and ports.low <= grpc.number <= ports.high:
            raise SettingsError(
                f"TFS_PROXY_GRPC_PORT={grpc.number} can't be used: it lies in SAGEMAKER_SAFE_PORT_RANGE="
                f"{ports.low}-{ports.high}, which is for the model servers."
            )

    @property
    def max_payload_bytes(self) -> int:
        """The body limit in bytes."""
        return (self.max_payload_mb or 100) * MEGABYTE


def _row(name: str) -> Setting:
    return next(row for row in TABLE if row.field == name)


def _read(row: Setting, raw: str) -> Any:
    if not raw.strip():
        return row.default
    try:
        return row.parse(raw)
    except ValueError as error:
        raise SettingsError(f"{row.variable}={raw} can't be used: it must be {error}.") from None


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """What the supervisor tells each worker: its unix sockets, the seats, and where requests are noted."""

    control_socket: str
    heartbeat_socket: str
    worker_sockets_file: str
    journal_folder: str

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "WorkerEnvironment":
        """Read them from ``environ`` (default: the process's own). Raises SettingsError without them."""
        environ = os.environ if environ is None else environ
        paths = [environ.get(name, "") for name in WORKER_VARIABLES]
        for name, path in zip(WORKER_VARIABLES, paths, strict=True):
            if not path:
                raise SettingsError(f"{name} is not set: workers are started by `tfs-proxy serve`.")
        return cls(*paths)


def on_platform(environ: Mapping[str, str]) -> bool:
    """Whether ``environ`` is one that SageMaker made, as far as can be told."""
    return any(environ.get(name, "").strip() for name in PLATFORM_VARIABLES)


def for_inner_stack(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` for a stack behind a program of ours: several would meet on one gRPC port."""
    return {name: value for name, value in environ.items() if name != "TFS_PROXY_GRPC_PORT"}


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Names in ``environ`` that look like settings of AWS's container or ours but are none here."""
    known = {row.variable for row in TABLE}
    prefixes = ("SAGEMAKER_TFS_", "SAGEMAKER_GUNICORN_", "SAGEMAKER_NGINX_", "TFS_PROXY_")
    return sorted(name for name in environ if name.startswith(prefixes) and name not in known)


def inherited_environment() -> dict[str, str]:
    """This process's environment, for children to inherit."""
    return dict(os.environ)


assert {row.field for row in TABLE} == {f.name for f in fields(Settings)} - {"machine", "changed", "given"}  # noqa: S101
