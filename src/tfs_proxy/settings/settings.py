"""Environment -> Settings: the only reader of the environment, first step of start-up.

Every setting stands once, as a field of `Settings` that carries its variable, parser, default and help;
`TABLE` lists them for documentation. Names and meanings of ``SAGEMAKER_*`` are those of AWS's container
(docs/reference/aws-container.md); if a default differs, ``aws`` has AWS's.
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from msgspec.structs import replace

from tfs_proxy.settings import parsers as parse
from tfs_proxy.settings import rows
from tfs_proxy.settings.parsers import HIGHEST_PORT, PortRange, Ports
from tfs_proxy.settings.rows import Group, UseSettings, patient
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import Machine, Resources, available_resources, bytes_left

DEFAULT_PAYLOAD_MB = 100
SERVING_VARIABLES = ("MODEL_NAME", "MODEL_BASE_PATH")
"""Variables that count only if the image replaces tensorflow/serving; else they may be a script's own."""

ADDRESSES = Group("Addresses and HTTP")
MODELS = Group("Models and archives")
MULTI_MODEL = Group("Multi-model mode")
SCRIPTS = Group("Scripts")
MODEL_SERVERS = Group("Model servers")
BATCHING = Group("Batching")
WORKERS = Group("Workers and timeouts")


# fmt: off
@dataclass(frozen=True, kw_only=True, slots=True)
class Settings(UseSettings):
    """Every setting of one run, typed: a field, with its row of the table of settings.

    The last fields are no variables.
    """

    port: int = ADDRESSES.setting(
        "SAGEMAKER_BIND_TO_PORT", parse.whole(0, HIGHEST_PORT), 8080,
        "port of HTTP, at which requests arrive; 0 takes a free one")
    safe_port_range: PortRange | None = ADDRESSES.setting(
        "SAGEMAKER_SAFE_PORT_RANGE", parse.port_range, None,
        "ports for the processes behind the HTTP port, LOW-HIGH; model server i takes LOW+2i for gRPC and "
        "LOW+2i+1 for REST, workers the last",
        shown="free loopback ports", aws="gRPC 9000, REST 8501")
    doors: frozenset[str] = ADDRESSES.setting(
        "TFS_PROXY_DOORS", parse.doors, frozenset({"v1", "v2", "page"}),
        "what is open besides /invocations, between commas, or none; v1, TF Serving's REST API; v2, the "
        "Open Inference Protocol by the model, v2-script by the script; page, a page at / to try models",
        shown="v1,v2,page; v1,v2 on SageMaker")
    grpc_port: Ports | None = ADDRESSES.setting(
        "TFS_PROXY_GRPC_PORT", parse.ports(parse.GRPC_PORT, several=False), None,
        "port of gRPC, for TF Serving's API and the Open Inference Protocol; 0 takes a free one; auto is "
        "8500 if it is free, and off on SageMaker",
        shown="off; auto in the images")
    extra_ports: Ports | None = ADDRESSES.setting(
        "TFS_PROXY_EXTRA_PORTS", parse.ports(parse.TENSORFLOW_SERVING_PORT, several=True), None,
        "more HTTP ports that answer as the first one does, between commas, behind nginx; auto is 8501 if "
        "it is free, and off if SageMaker says which ports to use",
        shown="off; auto in the images")
    nginx: bool = ADDRESSES.setting(
        "TFS_PROXY_NGINX", parse.flag, True,
        "put nginx in front of the workers if it is installed; false: they listen on the port themselves")
    gzip: bool = ADDRESSES.setting(
        "TFS_PROXY_GZIP", parse.flag, False,
        "compress answers for clients that accept gzip; JSON, CSV and JSON Lines of 1 KB and more, by nginx")
    max_payload_mb: int = ADDRESSES.setting(
        "SAGEMAKER_MAX_PAYLOAD_IN_MB", parse.whole(0, 100_000), DEFAULT_PAYLOAD_MB,
        "largest request body in MB; 0 means no limit for scripts that read bodies in parts, else 100",
        aws="no limit")
    max_decoded_total_mb: int | None = ADDRESSES.setting(
        "TFS_PROXY_MAX_DECODED_TOTAL_MB", parse.whole(1, 1_000_000), None,
        "MB of memory that large requests take together; the next ones wait 5 s, then get a 503; one body "
        "may take all of it, more is a 413",
        shown="half of what models and workers leave of the memory, at least the largest request body",
        aws="no limit")
    max_answer_mb: int = ADDRESSES.setting(
        "TFS_PROXY_MAX_ANSWER_MB", parse.whole(1, 1_000_000), lambda machine: machine.answer_mb,
        "largest answer in MB that is read from a model server, a stage or a container; more is a 502, and "
        "a failure in transform, ask and Client; what is passed on as it comes has no limit",
        shown="a sixteenth of the memory, from 256 to 2047", aws="no limit")

    model: str | None = MODELS.setting(
        "SAGEMAKER_MODEL_URI", str, None,
        "model to serve if the command names none; an archive, a folder or an address in a store",
        shown="/opt/ml/model")
    model_name: str | None = MODELS.setting(
        "TFS_PROXY_MODEL_NAME", parse.model_name, None,
        "name of the model in /v1/models/NAME, if there is only one",
        shown="the folder's name")
    default_model_name: str | None = MODELS.setting(
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME", lambda value: None if value.strip() == "None" else value, None,
        "model that answers requests without tfs-model-name; None, AWS's own word for it, is none",
        shown="the only model, else the first by name", aws="the first found")
    version_labels: Mapping[str, int] = MODELS.setting(
        "SAGEMAKER_TFS_VERSION_LABELS", parse.labels, {},
        "names of versions to ask for, such as stable=1,canary=2; for every model that has the version",
        shown="none")
    multi_model: bool = MODELS.setting(
        "SAGEMAKER_MULTI_MODEL", parse.flag, False,
        "serve many models, loaded and unloaded while it runs, by SageMaker or POST to /models")
    reload: bool = MODELS.setting(
        "TFS_PROXY_RELOAD", parse.flag, False,
        "serve changed code, models and archives without a restart; the old ones serve until the new ones "
        "are ready, and go on if what is new can't be used")
    serving_model_name: str | None = MODELS.setting(
        "MODEL_NAME", str, None,
        "name of the model and of its folder, if the image replaces tensorflow/serving",
        shown="model, else the only one there is")
    serving_base_path: str | None = MODELS.setting(
        "MODEL_BASE_PATH", str, None,
        "folder of the models' folders, if the image replaces tensorflow/serving", shown="/models")
    csv_columns: str | None = MODELS.setting(
        "TFS_PROXY_CSV_COLUMNS", str, None,
        "order of a model's inputs in text/csv without a header, such as a,b",
        shown="what pack recorded, else a header is needed")

    max_loaded_models: int = MULTI_MODEL.setting(
        "TFS_PROXY_MAX_LOADED_MODELS", parse.whole(0), 0,
        "most models that are loaded at a time; another load is a 507; 0 means no limit")
    universal_bucket: str | None = MULTI_MODEL.setting(
        "SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET", str, None,
        "S3 bucket of the script for models that bring none; without it that of /opt/ml/code "
        "or /opt/ml/models/code, if one has it")
    universal_prefix: str = MULTI_MODEL.setting(
        "SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX", str, "",
        "prefix of the script's files in that bucket; they are put into one folder", shown="the whole bucket")
    model_workers: int = MULTI_MODEL.setting(
        "TFS_PROXY_MODEL_WORKERS", parse.whole(1, 128), 1, "worker processes of each model that has a script")

    program: str = SCRIPTS.setting(
        "SAGEMAKER_PROGRAM", parse.script_name, "inference.py",
        "file of the script, below code/; inference.py if no file has that name", aws="ignored")
    default_accept: str | None = SCRIPTS.setting(
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", parse.media_type, None,
        "content type of the answer if the client sends no Accept, or */*",
        shown="application/json", aws="ignored")
    install_environment: tuple[str, ...] = SCRIPTS.setting(
        "TFS_PROXY_INSTALL_ENVIRONMENT", parse.variables, (),
        "variables that the installer of requirements.txt gets besides the usual ones, such as "
        "DATABASE_URL,AWS_*; the usual ones are PATH, HOME, TMPDIR, PIP_*, UV_* and those of language, "
        "proxies, certificates, compilers and CUDA; all lets everything through, filtered nothing more",
        shown="filtered", aws="all")
    install_seconds: float = SCRIPTS.setting(
        "TFS_PROXY_INSTALL_SECONDS", parse.number(1, 86400), 1800.0,
        "seconds that installing requirements.txt may take; then the start fails",
        shown="1800", aws="no limit")
    index: str = SCRIPTS.setting(
        "TFS_PROXY_INDEX", parse.one_of("without-wheels", "also"), "without-wheels",
        "when packages of requirements.txt are looked for in the package index; only if there is no "
        "code/wheels, or also for what is missing there")
    code_artifact: str | None = SCRIPTS.setting(
        "CA_REPOSITORY_ARN", parse.code_artifact, None,
        "ARN of a repository in AWS CodeArtifact that is the package index of requirements.txt, instead of "
        "PIP_INDEX_URL's; its token is got by the credentials of the machine", shown="none")

    instance_count: int = MODEL_SERVERS.setting(
        "SAGEMAKER_TFS_INSTANCE_COUNT", parse.whole(1, 128), 1,
        "model servers that run side by side, such as one for each GPU; each has all models")
    inter_op_parallelism: int | None = MODEL_SERVERS.setting(
        "SAGEMAKER_TFS_INTER_OP_PARALLELISM", parse.inter_op_threads, None,
        "threads that run parts of one graph at a time (inter-op); 0 lets TensorFlow choose, -1 takes the "
        "request's own; auto is -1 if all graphs are small, outside of batch jobs and batching",
        shown="auto; if not -1, 0, or cores under a CPU limit", aws="0")
    intra_op_parallelism: int = MODEL_SERVERS.setting(
        "SAGEMAKER_TFS_INTRA_OP_PARALLELISM", parse.whole(0),
        lambda machine: 1 if machine.busy else machine.tensorflow_threads,
        "threads that one operation of a graph may use (intra-op); 0 lets TensorFlow choose",
        shown="0; cores under a CPU limit; 1 in a batch job of as many requests at a time as cores", aws="0")
    gpu_memory_margin: float = MODEL_SERVERS.setting(
        "SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN", parse.number(0, 1), 0.2,
        "share of a GPU's memory left free if several model servers share it")
    extra_args: tuple[str, ...] = MODEL_SERVERS.setting(
        "SAGEMAKER_TFS_EXTRA_ARGS", parse.words, (), "more flags for the model server, quoted as in a shell",
        shown="none")
    wait_time_seconds: float = MODEL_SERVERS.setting(
        "SAGEMAKER_TFS_WAIT_TIME_SECONDS", parse.number(1, 86400), 300.0,
        "seconds that loading the models may take, and then the script; else the start fails",
        aws="60, and also the request timeout")

    enable_batching: bool = BATCHING.setting(
        "SAGEMAKER_TFS_ENABLE_BATCHING", parse.flag, False,
        "join requests that come together into one batch, in the model server")
    max_batch_size: int = BATCHING.setting(
        "SAGEMAKER_TFS_MAX_BATCH_SIZE", parse.whole(1), 8, "most records in one batch")
    batch_timeout_micros: int = BATCHING.setting(
        "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS", parse.whole(0), 1000,
        "µs that a request may wait until its batch is full")
    num_batch_threads: int = BATCHING.setting(
        "SAGEMAKER_TFS_NUM_BATCH_THREADS", parse.whole(1), lambda machine: machine.cores,
        "batches that run at the same time", shown="cores")
    max_enqueued_batches: int = BATCHING.setting(
        "SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES", parse.whole(1), patient(1000, 100_000_000),
        "batches that may wait; beyond that requests are refused with 503",
        shown="1000; 100000000 in a batch job", aws="cores; 100000000 in a batch job")

    gunicorn_workers: int = WORKERS.setting(
        "SAGEMAKER_GUNICORN_WORKERS", parse.whole(1, 1024), lambda machine: machine.workers.count,
        "worker processes that run the script or convert requests",
        shown="cores, or as many as memory and pids.max hold", aws="1")
    gunicorn_threads: int = WORKERS.setting(
        "SAGEMAKER_GUNICORN_THREADS", parse.whole(1, 4096),
        lambda machine: machine.worker_threads,
        "requests that each gthread worker runs at a time; one that waits for a model costs only a thread",
        shown="256 / default workers, at least 8; fewer where pids.max is small", aws="1")
    gunicorn_worker_class: str = WORKERS.setting(
        "SAGEMAKER_GUNICORN_WORKER_CLASS", parse.worker_class, "gthread",
        "how a worker runs several requests: gthread, in threads; sync, one by one; gevent",
        aws="gevent")
    request_timeout_seconds: float = WORKERS.setting(
        "TFS_PROXY_REQUEST_TIMEOUT_SECONDS", parse.number(1, 86400), patient(60.0, 3600.0),
        "seconds that one prediction may take, else it is a 504; a pipeline has them for all stages, a "
        "script 5 more, or twice as many if that is less, for its answer and each piece of a stream",
        shown="60; 3600 in a batch job", aws="no limit")
    gunicorn_timeout_seconds: int = WORKERS.setting(
        "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS", parse.whole(1, 86400), patient(70, 3610),
        "seconds until a worker that hangs is replaced; 5 more than the script has",
        shown="70; 3610 in a batch job", aws="30")
    nginx_proxy_read_timeout_seconds: int = WORKERS.setting(
        "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS", parse.whole(1, 86400), patient(75, 3615),
        "seconds that nginx waits for an answer; at least the workers' timeout, and 5 more than the script's",
        shown="75; 3615 in a batch job", aws="60")
    max_wait_seconds: float = WORKERS.setting(
        "TFS_PROXY_MAX_WAIT_SECONDS", parse.number(0.001, 86400), math.inf,
        "seconds that a request may wait for a free worker; later it is a 503 with Retry-After", shown="off")
    omp_num_threads: str = WORKERS.setting(
        "OMP_NUM_THREADS", parse.thread_counts, "1", "OpenMP threads in the workers and model servers")
    stop_seconds: float = WORKERS.setting(
        "TFS_PROXY_STOP_SECONDS", parse.number(0, 86400), 25.0,
        "seconds that requests in flight have to finish after SIGTERM")

    machine: Machine
    """Machine from which the defaults are taken."""

    script_timeout_seconds: float
    """Limit for a call of the script, which follows from the other timeouts."""

    changed: Mapping[str, str] = field(default_factory=dict)
    """Text by variable, for all whose values are not the defaults."""

    given: frozenset[str] = frozenset()
    """Variables that are set."""

    universal_code: str | None = None
    """Folder with the script for archives that have none; None without one."""

    loaded_as: str | None = None
    """Name of an archive that is loaded at run time; None outside of multi-model mode."""

    inter_op_reason: str = ""
    """Reason why there are so many inter-op threads, for the log; "" if they were not chosen."""

# fmt: on

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, resources: Resources | None = None
    ) -> "Settings":
        """Read all of `TABLE` from ``environ`` (default: the process's own).

        Defaults come from ``resources`` (default: those of this process). An empty value counts as unset, and
        so does one that Kubernetes sets for a Service. Raises SettingsError that names variable and value.
        """
        environ = rows.without_services(os.environ if environ is None else environ)
        environ = parse.with_log_level(environ)
        set_rows = [row for row in TABLE if environ.get(row.variable, "").strip()]
        set_values = {row.field: row.parsed(environ[row.variable]) for row in set_rows}
        concurrent = set_values.get("max_concurrent_transforms") or None
        machine = Machine(resources or available_resources(), set_values.get("batch", False), concurrent)
        defaults = {row.field: row.default_for(machine) for row in TABLE}
        values = {**defaults, **set_values}
        changed_rows = [row for row in set_rows if values[row.field] != defaults[row.field]]
        changed = {row.variable: environ[row.variable] for row in changed_rows}
        values |= parse.closed_on_sagemaker(values, set_values, environ)
        values |= rows.ordered_timeouts(values["request_timeout_seconds"], set_values)
        given = frozenset(row.variable for row in set_rows)
        parse.check_secured(values, environ)
        parse.check_ports(values["safe_port_range"], values["instance_count"], values["grpc_port"])
        return cls(**values, machine=machine, changed=changed, given=given)

    def with_values(self, **values: Any) -> "Settings":
        return dataclasses.replace(self, **values)

    def sized_for(self, models_bytes: int) -> "Settings":
        """A copy with the defaults that depend on the size of the models on disk."""
        machine = replace(self.machine, models_bytes=models_bytes)
        sized = {
            row.field: row.default_for(machine)
            for row in (_ROWS["gunicorn_workers"], _ROWS["gunicorn_threads"])
            if row.variable not in self.given
        }
        return self.with_values(machine=machine, **sized)

    def for_one_of_many(self, model: str) -> "Settings":
        """A copy for one of many models, whose archive is loaded as ``model``."""
        return self.with_values(
            multi_model=False,
            model_name=None,
            loaded_as=model,
            default_model_name=None,
            gunicorn_workers=self.model_workers,
            grpc_port=None,
            given=self.given | {_ROWS["gunicorn_workers"].variable},
        )

    @property
    def rest_api(self) -> bool:
        return "v1" in self.doors

    @property
    def console(self) -> bool:
        return "page" in self.doors

    @property
    def open_inference(self) -> str:
        """Answerer under /v2: script or model, which a script that is the model stands for; or off."""
        if "v2-script" in self.doors:
            return "script"
        return "model" if "v2" in self.doors else "off"

    @property
    def publishes_open_inference(self) -> bool:
        """True if anything answers under /v2."""
        return self.open_inference != "off"

    @property
    def payload_limit_mb(self) -> int:
        """Limit in MB of a body that is kept whole."""
        return self.max_payload_mb or DEFAULT_PAYLOAD_MB

    @property
    def max_payload_bytes(self) -> int:
        return self.payload_limit_mb * MEGABYTE

    @property
    def max_decoded_bytes(self) -> int:
        """Limit in bytes of all requests' decoded bodies together, which one may take alone."""
        if self.max_decoded_total_mb is not None:
            return self.max_decoded_total_mb * MEGABYTE
        machine = self.machine
        memory_bytes = machine.resources.memory_bytes or 0
        models_bytes = machine.models_bytes * self.instance_count
        left_bytes = bytes_left(memory_bytes, models_bytes, self.gunicorn_workers)
        return max(left_bytes // 2, self.max_payload_bytes)


_GROUPS = (MODELS, MULTI_MODEL, SCRIPTS, MODEL_SERVERS, BATCHING, WORKERS, *rows.LAST_GROUPS)
TABLE = rows.table_of(Settings, (ADDRESSES, rows.CALLERS, *_GROUPS))
_ROWS = {row.field: row for row in TABLE}
OF_THE_ADDRESS = frozenset(
    row.variable
    for row in TABLE
    if row.group in {ADDRESSES.heading, rows.CALLERS.heading} and not row.field.startswith("max_")
)
"""Variables about a run's address and who may call, limits of bodies apart: a stage has none of its own."""


def most_answer_bytes() -> int:
    """Limit of an answer for every client in this process. Raises SettingsError."""
    return _answer_bytes(os.environ.get("TFS_PROXY_MAX_ANSWER_MB", "").strip())


@cache
def _answer_bytes(text: str) -> int:
    row = _ROWS["max_answer_mb"]
    machine = Machine(available_resources(), batch=False, concurrent=None)
    return int(row.parsed(text) if text else row.default_for(machine)) * MEGABYTE


def inherited_environment() -> dict[str, str]:
    """Copy of this process's environment for its children."""
    return dict(os.environ)


def change_environment(changes: Mapping[str, str | None]) -> None:
    """Set variables of this process's environment, or remove those that are None."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
