"""Rows of the table of settings, as metadata of fields: how they are made, and those of particular uses."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from tfs_proxy.settings import parsers as parse
from tfs_proxy.settings.parsers import AccessLog
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.resources import Machine

Value = TypeVar("Value")

LONGER_SECONDS = 5
"""Difference between the timeouts of request, script, gunicorn and nginx: who knows most answers first."""

STALLED_SECONDS = 15
"""Between two reads of a body: longer than a network's hiccup, and a stalled upload soon makes room."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    group: str
    """Heading of the documentation below which it stands."""

    field: str
    """Name of the field of `settings.Settings`."""

    variable: str
    """Name of the environment variable."""

    parse: Callable[[str], Any]
    """Function from the variable's text to the value; its ValueError says what the text must be."""

    default: Any
    """Value if the variable is not set, or a function of `Machine` that computes it."""

    help: str
    """Description for the reference page."""

    shown: str = ""
    """Description of the default; "" if the value itself is shown."""

    aws: str = ""
    """Default of AWS's container; "" if it is the same."""

    def parsed(self, raw: str) -> Any:
        """Parse ``raw``. Raises SettingsError that names variable and value."""
        try:
            return self.parse(raw)
        except ValueError as error:
            raise SettingsError(f"{self.variable}={raw} can't be used: it must be {error}.") from None

    def default_for(self, machine: Machine) -> Any:
        """Compute the default on ``machine``."""
        return self.default(machine) if callable(self.default) else self.default

    @property
    def default_text(self) -> str:
        if self.shown:
            return self.shown
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return "" if self.default is None else f"{self.default}"


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that belong together, under one heading of the documentation."""

    heading: str

    def setting(
        self,
        variable: str,
        parse: Callable[[str], Value],
        default: Value | Callable[[Machine], Value] | None,
        help: str,  # noqa: A002 - as argparse has it
        *,
        shown: str = "",
        aws: str = "",
    ) -> Value:
        """Make a required field of a dataclass of settings; see `Setting`."""
        row = {"variable": variable, "parse": parse, "default": default}
        texts = {"group": self.heading, "help": help, "shown": shown, "aws": aws}
        # To mypy it is a value of the field's type; a parser or default of another type is an error.
        required: Any = field(metadata={**row, **texts})
        value: Value = required
        return value


def patient(usual: Value, in_a_batch_job: Value) -> Callable[[Machine], Value]:
    """Make a default that is larger in a batch transform job."""
    return lambda machine: in_a_batch_job if machine.batch else usual


def ordered_timeouts(request_seconds: float, given: Mapping[str, Any]) -> dict[str, float]:
    """Timeouts that follow from a request's, in the order in which they pass: script, gunicorn, nginx.

    A script may take as long as ``given`` values of gunicorn and nginx leave it, and they wait for it
    (docs/how-to/tuning.md has the table).
    """
    gunicorn = "gunicorn_timeout_seconds"
    nginx = "nginx_proxy_read_timeout_seconds"
    shortest = request_seconds + min(LONGER_SECONDS, request_seconds)
    script = max(shortest, given.get(gunicorn, 0) - LONGER_SECONDS, given.get(nginx, 0) - 2 * LONGER_SECONDS)
    of_gunicorn = given.get(gunicorn, math.ceil(script) + LONGER_SECONDS)
    of_nginx = given.get(nginx, of_gunicorn + LONGER_SECONDS)
    return {"script_timeout_seconds": script, gunicorn: of_gunicorn, nginx: of_nginx}


def table_of(settings: type, groups: Sequence[Group]) -> tuple[Setting, ...]:
    """Rows of a dataclass of settings in the order of ``groups``; fields without a row are left out."""
    rows = [Setting(field=row.name, **row.metadata) for row in fields(settings) if row.metadata]
    return tuple(row for group in groups for row in rows if row.group == group.heading)


GONE: Mapping[str, str] = {
    "SAGEMAKER_TFS_VERSION": "the image, or tensorflow_model_server on PATH, decides the version",
    "SAGEMAKER_MODEL_SERVER_WORKERS": "set SAGEMAKER_GUNICORN_WORKERS",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT": "set SAGEMAKER_GUNICORN_TIMEOUT_SECONDS",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "set SAGEMAKER_GUNICORN_TIMEOUT_SECONDS",
    "SAGEMAKER_STARTUP_TIMEOUT": "set SAGEMAKER_TFS_WAIT_TIME_SECONDS",
    "SAGEMAKER_NUM_MODEL_SERVERS": "set SAGEMAKER_TFS_INSTANCE_COUNT",
    "SAGEMAKER_BATCHING_ENABLED": "set SAGEMAKER_TFS_ENABLE_BATCHING",
    "SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "no sessions are kept: their headers reach a script as they are",
    "TFS_PROXY_CUDA_COMPAT": "cuInit's answer decides, and with --entrypoint tfs-proxy the driver is alone",
    "TFS_PROXY_MAX_ARCHIVE_GB": "archives may unpack to 100 GB",
    "TFS_PROXY_MODEL_IDLE_SECONDS": "models stay until others need room; set TFS_PROXY_MAX_LOADED_MODELS",
    "TFS_PROXY_MULTI_MODEL_MEMORY_MARGIN": "loads leave a tenth of the memory free",
    "TFS_PROXY_REST_THREADS": "set SAGEMAKER_TFS_EXTRA_ARGS=--rest_api_num_threads=NUMBER",
}
"""Settings of earlier releases and of AWS's containers that are not read, and what to do instead.

A setting that is renamed or goes is added here, for as long as docs/reference/compatibility.md promises.
"""

SET_BY_SAGEMAKER = re.compile(
    "SAGEMAKER_(BASE_DIR|BATCH_STRATEGY|CONTAINER_LOG_LEVEL|INTERNAL_.*|MANAGED_.*|REGION|SUBMIT_DIRECTORY)"
)
"""Variables that the platform or its SDK sets whatever the container is: nobody asks for anything by them."""


IMAGE_VALUES: Mapping[str, str] = {"TFS_PROXY_GRPC_PORT": "auto", "TFS_PROXY_EXTRA_PORTS": "auto"}
"""Settings that the Dockerfiles give a value."""

_OF_A_SERVICE = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*"
    r"|\w+_PORT=(tcp|udp|sctp)://.*"
)


def without_services(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out the variables by which Kubernetes tells each container of the namespace's Services.

    A Service called tfs-proxy-grpc has a TFS_PROXY_GRPC_PORT, which took the place of the image's value.
    """
    links = {name for name, value in environ.items() if _OF_A_SERVICE.fullmatch(f"{name}={value}")}
    image_values = {name: value for name, value in IMAGE_VALUES.items() if name in links}
    return {name: value for name, value in environ.items() if name not in links} | image_values


def unknown_variables(environ: Mapping[str, str], table: Iterable[Setting]) -> list[str]:
    """Names in ``environ`` that look like settings of AWS's container or this one, or are `GONE`."""
    environ = without_services(environ)
    known = {row.variable for row in table}
    return sorted(
        name
        for name in environ
        if (name.startswith(("SAGEMAKER_", "TFS_PROXY_")) or name in GONE)
        and name not in known
        and not SET_BY_SAGEMAKER.fullmatch(name)
    )


CALLERS = Group("Who may call")
JOBS = Group("Batch transform and pipelines")
CAPTURE = Group("Data capture")
FILES_AND_LOGS = Group("Files and logs")
LAST_GROUPS = (JOBS, CAPTURE, FILES_AND_LOGS)


# fmt: off
@dataclass(frozen=True, kw_only=True, slots=True)
class UseSettings:
    """The part of `settings.Settings` about callers and the `LAST_GROUPS`."""

    hosts: str = CALLERS.setting(
        "TFS_PROXY_HOST", str, "",
        "addresses to listen on, between commas; all, or local for this machine alone",
        shown="all in containers and on platforms, else local", aws="all")
    allowed_origins: str = CALLERS.setting(
        "TFS_PROXY_ALLOWED_ORIGINS", str, "",
        "web pages of other origins that may call (CORS), between commas; no others may then",
        shown="none", aws="all")
    allowed_hosts: str = CALLERS.setting(
        "TFS_PROXY_ALLOWED_HOSTS", str, "",
        "more names in Host, between commas, for a server that only this machine reaches",
        shown="those of localhost")
    model_folders: str = CALLERS.setting(
        "TFS_PROXY_MODEL_FOLDERS", str, "", "more folders, between commas, from which POST /models may load",
        shown="/opt/ml/models and the folder of --multi-model", aws="any path")
    tls_certificate: str | None = CALLERS.setting(
        "TFS_PROXY_TLS_CERTIFICATE", str, None,
        "certificate for TLS at all ports, a PEM file with those up to its CA; by nginx, 1.2 and up; files "
        "of keys and TLS are read again when their content changes", shown="no TLS")
    tls_key: str | None = CALLERS.setting(
        "TFS_PROXY_TLS_KEY", str, None,
        "private key of the certificate, a PEM file without a passphrase", shown="none")
    tls_client_ca: str | None = CALLERS.setting(
        "TFS_PROXY_TLS_CLIENT_CA", str, None,
        "CAs that must have signed clients' certificates, a PEM file; health checks need none",
        shown="no client certificates")
    api_keys: str | None = CALLERS.setting(
        "TFS_PROXY_API_KEYS", str, None,
        "file of the keys that callers must send; a line has a name and a key; it comes as Authorization: "
        "Bearer KEY, and probes need none", shown="no keys")
    admin_keys: str | None = CALLERS.setting(
        "TFS_PROXY_ADMIN_KEYS", str, None,
        "file of the keys that may load and unload models, and do all else",
        shown="those of TFS_PROXY_API_KEYS")

    batch: bool = JOBS.setting(
        "SAGEMAKER_BATCH", parse.flag, False, "true in a batch transform job; set by SageMaker")
    max_concurrent_transforms: int | None = JOBS.setting(
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", parse.whole(0), None,
        "requests at a time in a batch transform job; set by SageMaker", shown="unset", aws="ignored")

    capture_folder: str | None = CAPTURE.setting(
        "TFS_PROXY_CAPTURE", parse.capture_folder, None,
        "folder that requests to /invocations and their answers are recorded in", shown="off")
    capture_percent: float = CAPTURE.setting(
        "TFS_PROXY_CAPTURE_PERCENT", parse.number(0, 100), 100.0, "percent of the requests that are recorded",
        shown="100")

    gunicorn_loglevel: str = FILES_AND_LOGS.setting(
        parse.LOG_LEVEL, parse.log_level, "info",
        "how much the workers and the supervisor log; debug shows how gunicorn and TensorFlow start; "
        "SAGEMAKER_CONTAINER_LOG_LEVEL counts if it is unset")
    nginx_loglevel: str = FILES_AND_LOGS.setting(
        "SAGEMAKER_TFS_NGINX_LOGLEVEL",
        parse.one_of("debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"), "error",
        "how much nginx logs")
    log_format: str = FILES_AND_LOGS.setting(
        "TFS_PROXY_LOG_FORMAT", parse.one_of("text", "json"), "text",
        "form of the log: text, or json, one JSON object a line; both have the entries of all processes")
    access_log: AccessLog = FILES_AND_LOGS.setting(
        "TFS_PROXY_ACCESS_LOG", parse.access_log, AccessLog(AccessLog.ERRORS),
        "which requests get a line in the log; off, errors, slow:MS, sample:FRACTION or all; never /ping, "
        "/live, /metrics and /v2/health",
        shown="errors")
    home: str | None = FILES_AND_LOGS.setting(
        "TFS_PROXY_HOME", str, None, "folder for all files that are written",
        shown="the system's temporary folder")
# fmt: on

    @property
    def secured(self) -> dict[str, str]:
        """Files of keys and TLS, by the variables that name them."""
        files = {variable: getattr(self, field) for variable, field in parse.SECURED.items()}
        return {variable: path for variable, path in files.items() if path is not None}

    @property
    def scheme(self) -> str:
        return "http" if self.tls_certificate is None else "https"
