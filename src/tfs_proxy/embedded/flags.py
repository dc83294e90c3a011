"""The command line of tensorflow_model_server, as values: ``tfs-proxy model-server FLAGS``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from tfs_proxy.values.errors import SettingsError

_BOOLS = {"true": True, "false": False}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INT32 = range(-(2**31), 2**31)
_PORTS = range(2**16)
_COUNTS = range(2**31)
_MOST_DIGITS = 32


@dataclass(frozen=True, slots=True)
class ModelServerFlags:
    """Flags of tensorflow_model_server 2.20 with their defaults there.

    ``host`` and ``management_on_socket_only`` are additions. Those without an effect here are not among them.
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

    max_num_load_retries: int = 5
    """Number of further tries for a version that fails to load."""

    tensorflow_intra_op_parallelism: int = 0
    """Threads within an operation; 0 for TensorFlow's own choice."""

    tensorflow_inter_op_parallelism: int = 0
    """Operations at a time; 0 for TensorFlow's own choice."""

    tensorflow_session_config_file: str = ""
    """Text protobuf ConfigProto; "" for none."""

    per_process_gpu_memory_fraction: float = 0.0
    """Share of a GPU's memory, from 0 to 1; 0 for what TensorFlow takes."""

    ssl_config_file: str = ""
    """Text protobuf SSLConfig for gRPC; "" for no TLS."""

    enable_model_warmup: bool = True
    """True if a version answers the warm-up requests that it brings before it becomes available."""

    monitoring_config_file: str = ""
    """Text protobuf MonitoringConfig, for metrics on REST; "" for none."""

    enable_signature_method_name_check: bool = False
    """True if a signature answers only the method that it names."""

    enable_grpc_healthcheck_service: bool = False
    """True if ``grpc.health.v1.Health`` is answered."""

    version: bool = False
    """True if it prints its version, and ends."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    management_on_socket_only: bool = False
    """True if calls that change models are answered on the unix socket alone."""


_RANGES: Mapping[str, range] = {
    "port": _PORTS,
    "rest_api_port": _PORTS,
    "grpc_max_threads": _COUNTS,
    "rest_api_num_threads": _COUNTS,
    "tensorflow_intra_op_parallelism": _COUNTS,
}
_SWITCHES_WITHOUT_EFFECT = (
    "enable_serialization_as_tensor_content",
    "flush_filesystem_caches",
    "use_alts_credentials",
    "remove_unused_fields_from_bundle_metagraph",
    "prefer_tflite_model",
    "use_tflite_model",
    "xla_cpu_compilation_enabled",
    "xla_gpu_compilation_enabled",
    "enable_profiler",
    "skip_initialize_tpu",
    "force_allow_any_version_labels_for_unavailable_models",
)
_VALUES_WITHOUT_EFFECT = (
    "num_load_threads",
    "load_retry_interval_micros",
    "file_system_poll_wait_seconds",
    "tensorflow_session_parallelism",
    "num_request_iterations_for_warmup",
    "num_unload_threads",
    "num_tflite_pools",
    "num_tflite_interpreters_per_pool",
    "mixed_precision",
    "saved_model_tags",
    "platform_config_file",
    "thread_pool_factory_config_file",
)
"""Flags of the official server that are accepted, and mean nothing here."""

_WITHOUT_EFFECT = dict.fromkeys(_SWITCHES_WITHOUT_EFFECT, bool) | dict.fromkeys(_VALUES_WITHOUT_EFFECT, str)
_TYPES: Mapping[str, type] = get_type_hints(ModelServerFlags) | _WITHOUT_EFFECT


def parse(argv: Sequence[str]) -> tuple[ModelServerFlags, tuple[str, ...]]:
    """Read flags as ``--name=value`` or ``--name value``; a bool is true or false, or stands alone.

    Returns the flags and one sentence for each that was given and can mean nothing here. Raises
    SettingsError for an unknown flag, a missing value, or one of the wrong type.
    """
    values: dict[str, Any] = {}
    for name, text in _pairs(argv):
        values[name] = _value(name, text)
    flags = ModelServerFlags(**{name: value for name, value in values.items() if name not in _WITHOUT_EFFECT})
    if flags.batching_parameters_file and not flags.enable_batching:
        raise SettingsError("--batching_parameters_file is given without --enable_batching.")
    unused = sorted(_WITHOUT_EFFECT.keys() & values.keys())
    return flags, tuple(f"--{name} has no effect on the embedded model server." for name in unused)


def usage() -> str:
    shown = [f"  --{flag.name}={str(flag.default).lower()}" for flag in fields(ModelServerFlags)]
    return "\n".join(
        [
            "usage: tfs-proxy model-server --model_name=NAME --model_base_path=FOLDER [FLAG ...]",
            "",
            "The embedded model server: flags, REST and gRPC API of tensorflow_model_server.",
            "FOLDER holds one folder per version. Flags, with their defaults:",
            "",
            *shown,
            "",
            f"Accepted without effect: {', '.join(sorted(_WITHOUT_EFFECT))}.",
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
