"""The command line of tensorflow_model_server, as values: ``tfs-proxy model-server FLAGS``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from tfs_proxy.values.errors import SettingsError

_BOOLS = {"true": True, "false": False}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INT32 = range(-(2**31), 2**31)
_PORTS = range(2**16)
_COUNTS = range(2**31)
_MOST_DIGITS = 32
_BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class ModelServerFlags:
    """Every flag of tensorflow_model_server 2.20 with its default there.

    ``host`` and ``management_on_socket_only`` are additions. Flags marked ``unused`` are accepted and have
    no effect here.
    """

    port: int = 8500
    grpc_socket_path: str = ""
    grpc_max_threads: int = 0
    grpc_channel_arguments: str = ""
    rest_api_port: int = 0
    rest_api_num_threads: int = 0
    rest_api_timeout_in_ms: int = 30000
    rest_api_enable_cors_support: bool = False
    enable_batching: bool = False
    batching_parameters_file: str = ""
    enable_per_model_batching_parameters: bool = False
    allow_version_labels_for_unavailable_models: bool = False
    model_config_file: str = ""
    model_config_file_poll_wait_seconds: int = 0
    model_name: str = "default"
    model_base_path: str = ""
    num_load_threads: int = 0
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    file_system_poll_wait_seconds: int = 1
    tensorflow_session_parallelism: int = 0
    tensorflow_intra_op_parallelism: int = 0
    tensorflow_inter_op_parallelism: int = 0
    tensorflow_session_config_file: str = ""
    mixed_precision: str = ""
    per_process_gpu_memory_fraction: float = 0.0
    saved_model_tags: str = "serve"
    ssl_config_file: str = ""
    enable_model_warmup: bool = True
    num_request_iterations_for_warmup: int = 0
    monitoring_config_file: str = ""
    enable_signature_method_name_check: bool = False
    enable_grpc_healthcheck_service: bool = False
    enable_serialization_as_tensor_content: bool = False
    version: bool = False
    host: str = "127.0.0.1"
    management_on_socket_only: bool = False
    num_unload_threads: int = field(default=0, metadata={"unused": True})
    flush_filesystem_caches: bool = field(default=True, metadata={"unused": True})
    platform_config_file: str = field(default="", metadata={"unused": True})
    use_alts_credentials: bool = field(default=False, metadata={"unused": True})
    remove_unused_fields_from_bundle_metagraph: bool = field(default=True, metadata={"unused": True})
    prefer_tflite_model: bool = field(default=False, metadata={"unused": True})
    use_tflite_model: bool = field(default=False, metadata={"unused": True})
    num_tflite_pools: int = field(default=0, metadata={"unused": True})
    num_tflite_interpreters_per_pool: int = field(default=1, metadata={"unused": True})
    xla_cpu_compilation_enabled: bool = field(default=False, metadata={"unused": True})
    xla_gpu_compilation_enabled: bool = field(default=False, metadata={"unused": True})
    enable_profiler: bool = field(default=True, metadata={"unused": True})
    thread_pool_factory_config_file: str = field(default="", metadata={"unused": True})
    skip_initialize_tpu: bool = field(default=False, metadata={"unused": True})
    force_allow_any_version_labels_for_unavailable_models: bool = False


_RANGES: Mapping[str, range] = {
    "port": _PORTS,
    "rest_api_port": _PORTS,
    "grpc_max_threads": _COUNTS,
    "rest_api_num_threads": _COUNTS,
    "num_load_threads": _COUNTS,
    "tensorflow_session_parallelism": _COUNTS,
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
    if flags.mixed_precision not in {"", _BFLOAT16}:
        raise SettingsError(f"--mixed_precision={flags.mixed_precision} is not {_BFLOAT16}.")
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
                ahead, text = following, "true"
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
