"""Parsers of the settings table: one text from the environment -> one typed value.

Each parser raises ValueError with the phrase that follows "it must be" in the error. `check_ports` compares
the values of several.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from msgspec import Struct

from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.names import LABEL, SHORT_VERSION, is_model_name

Number = TypeVar("Number", int, float)

WORKER_CLASSES = ("gthread", "sync", "gevent")
GONE_CLASSES = {"eventlet": "gevent", "tornado": "gthread"}
HIGHEST_PORT = 65535
DOORS = ("v1", "v2", "v2-script", "page")
GRPC_PORT = 8500
"""Usual port of TF Serving's gRPC."""

TENSORFLOW_SERVING_PORT = 8501
"""Port of TF Serving's REST API, at which the local mode of SageMaker's SDK 3 asks for /invocations."""

PLATFORM_PORTS = ("SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_SAFE_PORT_RANGE")
"""Variables by which SageMaker says which ports a container may use (docs/reference/sagemaker.md)."""

SAGEMAKER_VARIABLES = (*PLATFORM_PORTS, "SAGEMAKER_MULTI_MODEL", "SAGEMAKER_BATCH")
PLATFORM_VARIABLES = (*SAGEMAKER_VARIABLES, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""Variables that SageMaker sets (docs/reference/sagemaker.md): it opens only one port of a container.

Other services of AWS give credentials to a task, too.
"""

SECURED: Final = {
    "TFS_PROXY_TLS_CERTIFICATE": "tls_certificate",
    "TFS_PROXY_TLS_KEY": "tls_key",
    "TFS_PROXY_TLS_CLIENT_CA": "tls_client_ca",
    "TFS_PROXY_API_KEYS": "api_keys",
    "TFS_PROXY_ADMIN_KEYS": "admin_keys",
}
"""Variables of files by which nginx knows callers, or is known to them, and their settings."""


class PortRange(Struct, frozen=True):
    """Ports of ``SAGEMAKER_SAFE_PORT_RANGE``, both ends included."""

    low: int
    high: int


class Ports(Struct, frozen=True):
    """Ports to listen on; if they are not ``required``, the server runs without them as well."""

    numbers: tuple[int, ...]
    required: bool


class AccessLog(Struct, frozen=True):
    """Choice of ``TFS_PROXY_ACCESS_LOG``: all but `OFF` log requests that fail."""

    OFF: ClassVar[str] = "off"
    """Mode without any lines."""

    ERRORS: ClassVar[str] = "errors"
    """Mode of requests that fail alone."""

    SLOW: ClassVar[str] = "slow"
    """Mode that adds requests which take long."""

    SAMPLE: ClassVar[str] = "sample"
    """Mode that adds a share of all requests."""

    ALL: ClassVar[str] = "all"
    """Mode of all requests."""

    mode: str
    """One of the modes above."""

    milliseconds: float = 0.0
    """Least duration of a request that counts as slow, for `SLOW`."""

    fraction: float = 0.0
    """Share of the requests, from 0 to 1, for `SAMPLE`."""

    def __str__(self) -> str:
        values = {self.SLOW: f":{self.milliseconds:g}", self.SAMPLE: f":{self.fraction:g}"}
        return self.mode + values.get(self.mode, "")


def model_name(value: str) -> str:
    """Accept a name that a model can have."""
    name = value.strip()
    if not is_model_name(name):
        raise ValueError("letters, digits, '.', '_' and '-', a letter or digit first, at most 255")
    return name


def script_name(value: str) -> str:
    """Accept a Python file below ``code/``; as in SageMaker's toolkits, the ending may be left out."""
    name = value.strip().removesuffix(".py")
    if not re.fullmatch(r"[A-Za-z0-9_][\w-]*(?:/[A-Za-z0-9_][\w-]*)*", name, re.ASCII):
        raise ValueError("a Python file below code/, such as inference.py")
    return f"{name}.py"


def code_artifact(value: str) -> str:
    """Accept the ARN of a repository in CodeArtifact."""
    arn = value.strip()
    if not re.fullmatch(
        r"arn:[a-z-]+:codeartifact:[a-z0-9-]+:[0-9]{12}:repository(/[\w.-]+){2}", arn, re.ASCII
    ):
        raise ValueError("arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY")
    return arn


def media_type(value: str) -> str:
    """Read a media type: lower case, without parameters."""
    name = value.partition(";")[0].strip().lower()
    if not re.fullmatch(r"[!#$%&'+.^_`|~0-9a-z-]+/[!#$%&'+.^_`|~0-9a-z-]+", name):
        raise ValueError("one media type, such as text/csv")
    return name


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Make a parser of whole numbers from ``low`` to ``high``, both allowed."""
    return _bounded("a whole number", r"[0-9]{1,18}", int, low, high)


def inter_op_threads(value: str) -> int | None:
    """Read a number of threads, -1 for the caller's own, or ``auto``, which is None."""
    match value.strip().lower():
        case "auto":
            return None
        case "-1":
            return -1
        case digits:
            try:
                return whole(0)(digits)
            except ValueError as error:
                raise ValueError(f"{error}, -1 or auto") from None


def number(low: float, high: float | None = None) -> Callable[[str], float]:
    """Make a parser of numbers from ``low`` to ``high``, both allowed."""
    return _bounded("a number", r"[0-9]{1,12}(\.[0-9]{1,9})?", float, low, high)


def _bounded(
    kind: str, pattern: str, convert: Callable[[str], Number], low: float, high: float | None
) -> Callable[[str], Number]:
    bounds = f"of at least {low:.12g}" if high is None else f"from {low:.12g} to {high:.12g}"

    def parse(value: str) -> Number:
        if re.fullmatch(pattern, value.strip()):
            parsed = convert(value)
            if low <= parsed and (high is None or parsed <= high):
                return parsed
        raise ValueError(f"{kind} {bounds}")

    return parse


def thread_counts(value: str) -> str:
    """Accept whole numbers between commas, one a nesting level, as OpenMP has them."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}(,[1-9][0-9]{0,5})*", value.strip()):
        raise ValueError("a whole number of at least 1, or several, separated by commas")
    return value.strip()


def flag(value: str) -> bool:
    """Read true or false, in any case of letters (SageMaker local mode writes ``True``)."""
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("true or false")


def one_of(*choices: str) -> Callable[[str], str]:
    """Make a parser of ``choices``, in any case of letters."""

    def parse(value: str) -> str:
        chosen = value.strip().lower()
        if chosen not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return chosen

    return parse


LOG_LEVEL = "SAGEMAKER_GUNICORN_LOGLEVEL"
SDK_LOG_LEVEL = "SAGEMAKER_CONTAINER_LOG_LEVEL"
_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


def with_log_level(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Add the log level that SageMaker's SDK sets to ``environ``, if it has none of this container's."""
    level = "" if environ.get(LOG_LEVEL, "").strip() else environ.get(SDK_LOG_LEVEL, "").strip()
    return {**environ, LOG_LEVEL: level} if level else environ


def log_level(value: str) -> str:
    """Read a level by its name, or by its number in Python's logging, which SageMaker's SDK sends."""
    if value.strip().isdecimal():
        return _LOG_LEVELS[min(max(int(value) // 10 - 1, 0), len(_LOG_LEVELS) - 1)]
    try:
        return one_of(*_LOG_LEVELS)(value)
    except ValueError as error:
        raise ValueError(f"{error}, or a number such as 20, as {SDK_LOG_LEVEL} has it") from None


def access_log(value: str) -> AccessLog:
    """Read ``off``, ``errors``, ``slow:MS``, ``sample:FRACTION`` or ``all``."""
    mode, colon, amount = value.strip().lower().partition(":")
    try:
        if mode == AccessLog.SLOW and colon:
            return AccessLog(mode, milliseconds=number(0)(amount))
        if mode == AccessLog.SAMPLE and colon:
            return AccessLog(mode, fraction=number(0, 1)(amount))
    except ValueError as error:
        raise ValueError(f"{mode}:NUMBER with {error}") from None
    if mode in {AccessLog.OFF, AccessLog.ERRORS, AccessLog.ALL} and not colon:
        return AccessLog(mode)
    raise ValueError("off, errors, slow:MS (such as slow:500), sample:FRACTION (such as sample:0.01) or all")


def worker_class(value: str) -> str:
    """Accept a gunicorn worker class; the error says that two of AWS's container are gone."""
    name = value.strip().lower()
    if name in GONE_CLASSES:
        raise ValueError(f"one of {', '.join(WORKER_CLASSES)}: no {name} here, take {GONE_CLASSES[name]}")
    return one_of(*WORKER_CLASSES)(value)


def port_range(value: str) -> PortRange:
    """Read ``LOW-HIGH``, both ends included."""
    wanted = "two ports as LOW-HIGH, the lower first"
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", value.strip())
    if match is None:
        raise ValueError(wanted)
    low = int(match[1])
    high = int(match[2])
    if not 0 < low <= high <= HIGHEST_PORT:
        raise ValueError(wanted)
    return PortRange(low, high)


def ports(auto: int, *, several: bool) -> Callable[[str], Ports | None]:
    """Make a parser of a port or ``several``, ``auto`` for one if it is free, or ``off``, which is None."""
    form, low, wanted = (
        (r"[0-9]{1,5}(?: *, *[0-9]{1,5})*", 1, "ports from 1")
        if several
        else (r"[0-9]{1,5}", 0, "a port from 0")
    )

    def parse(value: str) -> Ports | None:
        text = value.strip().lower()
        if text in {"off", "auto"}:
            return None if text == "off" else Ports((auto,), required=False)
        numbers = tuple(dict.fromkeys(map(int, text.split(",")))) if re.fullmatch(form, text) else ()
        if not numbers or not low <= min(numbers) <= max(numbers) <= HIGHEST_PORT:
            commas = " between commas" if several else ""
            raise ValueError(f"{wanted} to {HIGHEST_PORT}{commas}, auto or off")
        return Ports(numbers, required=True)

    return parse


def capture_folder(value: str) -> str:
    """Accept a folder."""
    folder = value.strip()
    if "\0" in folder or folder.startswith("s3:"):
        raise ValueError("a folder: `aws s3 sync` or a log shipper takes its files to S3")
    return str(Path(folder).absolute())


def doors(value: str) -> frozenset[str]:
    """Read the doors that are open, between commas, or ``none``."""
    words = frozenset(word.strip().lower() for word in value.split(","))
    if words != {"none"} and not words <= set(DOORS):
        raise ValueError(f"one or more of {', '.join(DOORS)}, between commas, or none")
    return words - {"none"}


def variables(value: str) -> tuple[str, ...]:
    """Read names of variables between commas, in which ``*`` stands for any characters; ``all`` is ``*``."""
    names = tuple(name.strip() for name in value.split(","))
    if (word := value.strip().lower()) in {"filtered", "all"}:
        return ("*",) if word == "all" else ()
    if not all(re.fullmatch(r"[A-Za-z_*][A-Za-z0-9_*]*", name) for name in names):
        raise ValueError("names of variables between commas, all or filtered")
    return names


def words(value: str) -> tuple[str, ...]:
    """Split words quoted as in a shell."""
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"arguments quoted as in a shell ({error})") from None


def labels(value: str) -> Mapping[str, int]:
    """Read ``LABEL=VERSION`` pairs between commas."""
    labels: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in value.split(","))):
        match = re.fullmatch(rf"({LABEL})\s*=\s*({SHORT_VERSION})", pair)
        if match is None or match[1] in labels:
            raise ValueError("LABEL=VERSION pairs, separated by commas, each label once: stable=1,canary=2")
        labels[match[1]] = int(match[2])
    return labels


def for_inner_stack(environ: Mapping[str, str]) -> dict[str, str]:
    """Change ``environ`` for a stack inside another program.

    Several stacks can't share gRPC's port, extra ports or a range of ports, nor a folder of captured
    requests. Only the program calls them, without keys and TLS.
    """
    ports = {"TFS_PROXY_GRPC_PORT", "TFS_PROXY_EXTRA_PORTS", "SAGEMAKER_SAFE_PORT_RANGE"}
    outer = {*ports, "TFS_PROXY_CAPTURE", *SECURED}
    return {name: value for name, value in environ.items() if name not in outer}


def asks_for_json(environ: Mapping[str, str]) -> bool:
    """Tell if the log should be JSON, even if another setting can't be used."""
    return environ.get("TFS_PROXY_LOG_FORMAT", "").strip().lower() == "json"


def closed_on_sagemaker(
    values: Mapping[str, Any], given: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Settings of doors that stay closed on SageMaker, unless they are ``given`` or required."""
    on_sagemaker, limits_ports = (
        any(environ.get(name, "").strip() for name in names) for names in (PLATFORM_VARIABLES, PLATFORM_PORTS)
    )
    closed: dict[str, Any] = {}
    for field, applies in (("grpc_port", on_sagemaker), ("extra_ports", limits_ports)):
        if applies and values[field] is not None and not values[field].required:
            closed[field] = None
    if on_sagemaker and "doors" not in given:
        closed["doors"] = values["doors"] - {"page"}
    return closed


def check_secured(values: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raise SettingsError for keys or TLS on SageMaker, for spaces in place of a file, and for lone files."""
    for variable in SECURED:
        if environ.get(variable, "").isspace():
            raise SettingsError(f"{variable} is spaces alone: it names a file, and empty stands for none.")
    given = [variable for variable, field in SECURED.items() if values[field] is not None]
    platform = next((name for name in SAGEMAKER_VARIABLES if environ.get(name, "").strip()), None)
    if given and platform is not None:
        raise SettingsError(
            f"{given[0]} can't be used with {platform}, a variable of SageMaker's, which calls containers "
            "without keys and TLS, and lets nobody else reach them. Leave it out there."
        )
    certificate, key, client_ca = list(SECURED)[:3]
    for one, needed in ((certificate, key), (key, certificate), (client_ca, certificate)):
        if one in given and needed not in given:
            raise SettingsError(f"{one} can't be used without {needed}: set both.")


def check_ports(safe: PortRange | None, instance_count: int, grpc: Ports | None) -> None:
    """Raise SettingsError if the port range is too small, or includes the gRPC port."""
    if safe is None:
        return
    if safe.low + 2 * instance_count - 1 > safe.high:
        raise SettingsError(
            f"SAGEMAKER_SAFE_PORT_RANGE={safe.low}-{safe.high} is too small: "
            f"{instance_count} model server(s) need {2 * instance_count} ports."
        )
    if grpc is not None and safe.low <= grpc.numbers[0] <= safe.high:
        raise SettingsError(
            f"TFS_PROXY_GRPC_PORT={grpc.numbers[0]} can't be used: it is in SAGEMAKER_SAFE_PORT_RANGE="
            f"{safe.low}-{safe.high}, which is for the model servers."
        )
