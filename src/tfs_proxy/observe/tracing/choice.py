"""Choice of requests to trace: OTEL_* variables, read without OpenTelemetry; shares of nginx and worker.

nginx marks requests at random, in hundredths of a percent, and at least as many as are wanted; a worker takes
a part of those. Together they come to the share itself.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from math import ceil
from typing import Literal

from msgspec import Struct

from tfs_proxy.values.deployment import TraceSampling
from tfs_proxy.values.installation import how_to_install

EXPORTERS = ("otlp", "console")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"

MARKED, NOT_MARKED = "1", "0"
_STEPS = 10_000


class TraceChoice(Struct, frozen=True):
    """Sampling, None if requests are not traced, and the reason for that if one might expect traces."""

    sampling: TraceSampling | None = None
    warning: str | None = None


def trace_choice(environ: Mapping[str, str], *, installed: bool | None = None) -> TraceChoice:
    """Read the variables; traces need an endpoint or an exporter, and OpenTelemetry ``installed``."""
    exporter = _value(environ, "OTEL_TRACES_EXPORTER")
    if _value(environ, "OTEL_SDK_DISABLED") == "true" or exporter == "none":
        return TraceChoice()
    variable = "OTEL_TRACES_EXPORTER" if exporter else _first_set(environ, ENDPOINTS)
    if variable is None:
        return TraceChoice()
    warning = _unusable(environ)
    if warning is None and not (_is_installed() if installed is None else installed):
        advice = f"OpenTelemetry is not installed. Install it with {how_to_install('otel')}."
        warning = f"{variable} is set, and no traces are sent: {advice}"
    return TraceChoice(warning=warning) if warning else TraceChoice(_sampling(environ))


def exporter_of(environ: Mapping[str, str]) -> str:
    return _value(environ, "OTEL_TRACES_EXPORTER") or "otlp"


def is_divided(sampling: TraceSampling) -> bool:
    """True if nginx marks requests; if all or none are traced there is nothing to divide."""
    return 0.0 < sampling.share < 1.0


def marked_share(sampling: TraceSampling) -> float:
    """Share of requests that nginx marks."""
    return ceil(round(sampling.share * _STEPS, 6)) / _STEPS


def kept_share(sampling: TraceSampling) -> float:
    """Share of marked requests that the worker samples."""
    return min(sampling.share / marked_share(sampling), 1.0) if sampling.share else 0.0


def _unusable(environ: Mapping[str, str]) -> str | None:
    name, value, allowed = "OTEL_TRACES_EXPORTER", exporter_of(environ), "otlp, console or none"
    if value in EXPORTERS:
        name, allowed = _first_set(environ, PROTOCOLS) or PROTOCOLS[-1], PROTOCOL
        if value != "otlp" or (value := _value(environ, name) or PROTOCOL) == PROTOCOL:
            return None
    return f"{name}={value} can't be used, and no traces are sent: it must be {allowed}."


def _is_installed() -> bool:
    try:
        return None not in map(find_spec, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
    except ModuleNotFoundError:
        return False


def _sampling(environ: Mapping[str, str]) -> TraceSampling:
    """Sampling of OpenTelemetry's sampler of that name; it takes parentbased_always_on for an unknown one."""
    sampler = _value(environ, "OTEL_TRACES_SAMPLER")
    if sampler.endswith("always_off"):
        share = 0.0
    elif sampler.endswith("traceidratio"):
        share = _ratio(_value(environ, "OTEL_TRACES_SAMPLER_ARG"))
    else:
        share = 1.0
    parents: Mapping[str, Literal["ignored", "examined"]] = {
        "always_on": "ignored",
        "always_off": "ignored",
        "traceidratio": "examined",
    }
    known = {*parents, *(f"parentbased_{name}" for name in parents)}
    return TraceSampling(share if sampler in known else 1.0, parents.get(sampler, "followed"))


def _ratio(text: str) -> float:
    """Read OTEL_TRACES_SAMPLER_ARG; 1 if it is not a number from 0 to 1, as in OpenTelemetry."""
    try:
        ratio = float(text)
    except ValueError:
        return 1.0
    return ratio if 0.0 <= ratio <= 1.0 else 1.0


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if _value(environ, name)), None)


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()
