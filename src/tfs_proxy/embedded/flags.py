"""The command line of tensorflow_model_server, as values: ``tfs-proxy model-server FLAGS``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

from tfs_proxy.values.errors import SettingsError

_BOOLS = {"true": True, "false": False}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INT32 = range(-(2**31), 2**31)
_PORTS = range(2**16)
_COUNTS = range(2**31)
_MOST_DIGITS = 32

Value = TypeVar("Value")


def _unused(default: Value) -> Value:
    """Make a field of a flag that has no effect here."""
    unused: Any = field(default=default, metadata={"unused": True})
    value: Value = unused
    return value


@dataclass(frozen=True, slots=True)
class ModelServerFlags:
    """Every flag of tensorflow_model_server 2.20 with its default there.

    ``host`` and ``management_on_socket_only`` are additions. Flags marked ``unused`` are accepted and have no
    effect here.
    """

    port: int = 8500
    """Port of gRPC; 0 for none."""

    grpc_socket_path: str = ""
    """Path of a unix socket that answers gRPC, too; "" for none."""

    grpc_max_threads: int = 0
    """Threads that answer gRPC; 0 for a number by the cores."""

    grpc_channel_arguments: str = ""
    """Options of the gRPC server, ``name=value`` between commas."""

    rest_api_port: int = 0
    """Port of REST; 0 for none."""

    rest_api_num_threads: int = 0
    """Threads that answer REST; 0 for a number by the cores."""

    rest_api_timeout_in_ms: int = 30000
    """Milliseconds that a call of REST may take; 0 or less for any time."""

    rest_api_enable_cors_support: bool = False
    """True if pages of other sites may call REST."""

    enable_batching: bool = False
    """True if requests are batched."""

    batching_parameters_file: str = ""
    """Text protobuf BatchingParameters; "" for the defaults. Needs ``enable_batching``."""

    enable_per_model_batching_parameters: bool = False
    """True if versions bring batching parameters of their own."""

    allow_version_labels_for_unavailable_models: bool = False
    """True if a new label may name a version that is not loaded."""

    model_config_file: str = ""
    """Text protobuf ModelServerConfig; "" for the one model of the flags."""

    model_config_file_poll_wait_seconds: int = 0
    """Seconds between two reads of that file; 0 for one read at the start."""

    model_name: str = "default"
    """Name of the one model."""

    model_base_path: str = ""
    """Folder of its versions; "" if a file names the models."""

    num_load_threads: int = _unused(0)
    """Threads that load versions; 0 for one for each core."""

    max_num_load_retries: int = 5
    """Number of further tries for a version that fails to load."""

    load_retry_interval_micros: int = _unused(60_000_000)
    """Microseconds between two tries."""

    file_system_poll_wait_seconds: int = _unused(1)
    """Seconds between two looks for versions; 0 for one look, less than 0 for none."""

    tensorflow_session_parallelism: int = _unused(0)
    """Threads of TensorFlow for the next two flags; 0 for its own choice."""

    tensorflow_intra_op_parallelism: int = 0
    """Threads within an operation; 0 for TensorFlow's own choice."""

    tensorflow_inter_op_parallelism: int = 0
    """Operations at a time; 0 for TensorFlow's own choice."""

    tensorflow_session_config_file: str = ""
    """Text protobuf ConfigProto; "" for none."""

    mixed_precision: str = _unused("")
    """Type for parts of the graph, "bfloat16"; "" for the graph's own."""

    per_process_gpu_memory_fraction: float = 0.0
    """Share of a GPU's memory, from 0 to 1; 0 for what TensorFlow takes."""

    saved_model_tags: str = _unused("serve")
    """Tags of the graph to load, between commas."""

    ssl_config_file: str = ""
    """Text protobuf SSLConfig for gRPC; "" for no TLS."""

    enable_model_warmup: bool = True
    """True if a version answers the warm-up requests that it brings before it becomes available."""

    num_request_iterations_for_warmup: int = _unused(0)
    """Times that each of its requests is answered; 0 counts as 1."""

    monitoring_config_file: str = ""
    """Text protobuf MonitoringConfig, for metrics on REST; "" for none."""

    enable_signature_method_name_check: bool = False
    """True if a signature answers only the method that it names."""

    enable_grpc_healthcheck_service: bool = False
    """True if ``grpc.health.v1.Health`` is answered."""

    enable_serialization_as_tensor_content: bool = _unused(False)
    """True if numbers of answers over gRPC are raw bytes."""

    version: bool = False
    """True if it prints its version, and ends."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    management_on_socket_only: bool = False
    """True if calls that change models are answered on the unix socket alone."""

    num_unload_threads: int = _unused(0)
    """Threads that unload versions."""

    flush_filesystem_caches: bool = _unused(True)
    """True if files are dropped from the system's caches after a load."""

    platform_config_file: str = _unused("")
    """Text protobuf PlatformConfigMap."""

    use_alts_credentials: bool = _unused(False)
    """True for Google's ALTS on gRPC."""

    remove_unused_fields_from_bundle_metagraph: bool = _unused(True)
    """True if parts of the graph that nothing uses are dropped."""

    prefer_tflite_model: bool = _unused(False)
    """True if a model.tflite is taken rather than the SavedModel beside it."""

    use_tflite_model: bool = _unused(False)
    """True if models are files of TensorFlow Lite."""

    num_tflite_pools: int = _unused(0)
    """Number of pools of interpreters of TensorFlow Lite."""

    num_tflite_interpreters_per_pool: int = _unused(1)
    """Number of interpreters in each of these."""

    xla_cpu_compilation_enabled: bool = _unused(False)
    """True if XLA compiles graphs for the CPU."""

    xla_gpu_compilation_enabled: bool = _unused(False)
    """True if XLA compiles graphs for GPUs."""

    enable_profiler: bool = _unused(True)
    """True if TensorFlow's profiler is answered."""

    thread_pool_factory_config_file: str = _unused("")
    """Text protobuf ThreadPoolFactoryConfig."""

    skip_initialize_tpu: bool = _unused(False)
    """True if TPUs are left alone at the start."""

    force_allow_any_version_labels_for_unavailable_models: bool = _unused(False)
    """True if a label may move to such a version, too."""


_RANGES: Mapping[str, range] = {
    "port": _PORTS,
    "rest_api_port": _PORTS,
    "grpc_max_threads": _COUNTS,
    "rest_api_num_threads": _COUNTS,
    "tensorflow_intra_op_parallelism": _COUNTS,
    "load_retry_interval_micros": range(-(2**63), 2**63),
}
_TYPES = get_type_hints(ModelServerFlags)
_UNUSED = {flag.name for flag in fields(ModelServerFlags) if flag.metadata.get("unused")}


def parse(argv: Sequence[str]) -> tuple[ModelServerFlags, tuple[str, ...]]:
    """Read flags as ``--name=value`` or ``--name value``; a bool is true or false, or stands alone.

    Returns the flags and one sentence for each that was given and can mean nothing here. Raises
    SettingsError for an unknown flag, a missing value, or one of the wrong type.
    """
    values: dict[str, Any] = {}
    for name, text in _pairs(argv):
        values[name] = _value(name, text)
    flags = ModelServerFlags(**values)
    if flags.batching_parameters_file and not flags.enable_batching:
        raise SettingsError("--batching_parameters_file is given without --enable_batching.")
    unused = sorted(_UNUSED & values.keys())
    return flags, tuple(f"--{name} has no effect on the embedded model server." for name in unused)


def usage() -> str:
    shown = [
        f"  --{flag.name}={str(flag.default).lower()}"
        for flag in fields(ModelServerFlags)
        if flag.name not in _UNUSED
    ]
    return "\n".join(
        [
            "usage: tfs-proxy model-server --model_name=NAME --model_base_path=FOLDER [FLAG ...]",
            "",
            "The embedded model server: flags, REST and gRPC API of tensorflow_model_server.",
            "FOLDER holds one folder per version. Flags, with their defaults:",
            "",
            *shown,
            "",
            f"Accepted without effect: {', '.join(sorted(_UNUSED))}.",
        ]
    )


def _pairs(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    rest = iter(argv)
    ahead: str | None = None
    while (argument := ahead if ahead is not None else next(rest, None)) is not None:
        ahead = None
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not argument.startswith("-") or name not in _TYPES:
            raise SettingsError(f"Unknown flag of the model server: {argument}")
        if not equals:
            following = next(rest, None)
            if _TYPES[name] is bool and (following is None or following.startswith("-")):
                ahead = following
                text = "true"
            elif following is None:
                raise SettingsError(f"--{name} needs a value.")
            else:
                text = following
        yield name, text


def _value(name: str, text: str) -> bool | int | float | str:
    kind = _TYPES[name]
    if kind is bool:
        if text not in _BOOLS:
            raise SettingsError(f"--{name}={text} is neither true nor false.")
        return _BOOLS[text]
    if kind is int:
        if not _WHOLE.fullmatch(text):
            raise SettingsError(f"--{name}={text} is not a whole number.")
        allowed = _RANGES.get(name, _INT32)
        if len(text) > _MOST_DIGITS or int(text) not in allowed:
            raise SettingsError(f"--{name}={text} does not lie between {allowed[0]} and {allowed[-1]}.")
        return int(text)
    try:
        return kind(text)  # type: ignore[no-any-return]
    except ValueError as error:
        raise SettingsError(f"--{name}={text} is not a number.") from error
