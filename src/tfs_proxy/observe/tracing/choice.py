"""OTEL_* variables -> which requests are traced, if any: read by the supervisor, without OpenTelemetry."""

from collections.abc import Mapping
from importlib.util import find_spec

from msgspec import Struct

from tfs_proxy.deployment import TraceSampling
from tfs_proxy.names import how_to_install

EXPORTERS = ("otlp", "console")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"

MISSING = (
    "{variable} is set, and no traces are sent: OpenTelemetry is not installed. "
    f"Install it with {how_to_install('otel')}."
)


class TraceChoice(Struct, frozen=True):
    """What the variables ask for: None if requests are not traced, and why not if one might expect it."""

    sampling: TraceSampling | None = None
    warning: str | None = None


def trace_choice(environ: Mapping[str, str], *, installed: bool | None = None) -> TraceChoice:
    """Traces are on if an endpoint or an exporter is set; ``installed`` is whether OpenTelemetry is."""
    variable = _switched_on_by(environ)
    if variable is None:
        return TraceChoice()
    warning = _unusable(environ)
    if warning is None and not (_is_installed() if installed is None else installed):
        warning = MISSING.format(variable=variable)
    return TraceChoice(warning=warning) if warning else TraceChoice(_sampling(environ))


def exporter_of(environ: Mapping[str, str]) -> str:
    """The name of the exporter."""
    return _value(environ, "OTEL_TRACES_EXPORTER") or "otlp"


def _switched_on_by(environ: Mapping[str, str]) -> str | None:
    """The variable that switches traces on; None if none does, or another switches them off."""
    exporter = _value(environ, "OTEL_TRACES_EXPORTER")
    if _value(environ, "OTEL_SDK_DISABLED") == "true" or exporter == "none":
        return None
    if exporter:
        return "OTEL_TRACES_EXPORTER"
    return next((name for name in ENDPOINTS if _value(environ, name)), None)


def _unusable(environ: Mapping[str, str]) -> str | None:
    exporter = exporter_of(environ)
    if exporter not in EXPORTERS:
        return (
            f"OTEL_TRACES_EXPORTER={exporter} can't be used, and no traces are sent: it must be otlp, "
            "console or none."
        )
    name = next((name for name in PROTOCOLS if _value(environ, name)), PROTOCOLS[-1])
    protocol = _value(environ, name) or PROTOCOL
    if exporter == "otlp" and protocol != PROTOCOL:
        return f"{name}={protocol} can't be used, and no traces are sent: it must be {PROTOCOL}."
    return None


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.sdk") is not None and (
            find_spec("opentelemetry.exporter.otlp.proto.http") is not None
        )
    except ModuleNotFoundError:
        return False


def _sampling(environ: Mapping[str, str]) -> TraceSampling:
    """What OpenTelemetry's sampler of that name does; it takes parentbased_always_on for an unknown one."""
    match _value(environ, "OTEL_TRACES_SAMPLER"):
        case "always_on":
            return TraceSampling(1.0, "ignored")
        case "always_off":
            return TraceSampling(0.0, "ignored")
        case "traceidratio":
            return TraceSampling(_ratio(environ), "examined")
        case "parentbased_traceidratio":
            return TraceSampling(_ratio(environ), "followed")
        case "parentbased_always_off":
            return TraceSampling(0.0, "followed")
        case _:
            return TraceSampling(1.0, "followed")


def _ratio(environ: Mapping[str, str]) -> float:
    """OTEL_TRACES_SAMPLER_ARG; 1 if it is not a number from 0 to 1, as OpenTelemetry has it."""
    try:
        ratio = float(_value(environ, "OTEL_TRACES_SAMPLER_ARG"))
    except ValueError:
        return 1.0
    return ratio if 0.0 <= ratio <= 1.0 else 1.0


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()
