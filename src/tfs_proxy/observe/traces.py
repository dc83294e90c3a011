"""Traces without OpenTelemetry: the OTEL_* variables, parents of requests, and headers of calls.

nginx finds parents by the same patterns, and marks the share of requests without one.
"""

import logging
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import ceil

from tfs_proxy.values.attributes import attribute_pattern
from tfs_proxy.values.deployment import TraceSampling
from tfs_proxy.values.installation import how_to_install
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, TRACEPARENT, TRACESTATE

log = logging.getLogger(__name__)

PROTOCOL = "http/protobuf"
MARKED = "1"
_PARENTS = {"always_on": "ignored", "always_off": "ignored", "traceidratio": "examined"}
_STEPS = 10_000
"""nginx takes a share in hundredths of a percent."""

ANY_FLAGS = "([0-9a-f]{2})"
SAMPLED_FLAGS = "([0-9a-f][13579bdf])"


def trace_sampling(environ: Mapping[str, str]) -> TraceSampling | None:
    """Read the variables, which ask for traces by an endpoint or an exporter; None if there are none.

    Logs a warning if they ask for what can't be had.
    """

    def value(*names: str) -> tuple[str, str]:
        """First of the variables that is set, and its value in lower case."""
        found = ((name, environ.get(name, "").strip().lower()) for name in names)
        return next(((name, text) for name, text in found if text), ("", ""))

    chosen, exporter = value("OTEL_TRACES_EXPORTER")
    asked = chosen or value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")[0]
    if not asked or exporter == "none" or value("OTEL_SDK_DISABLED")[1] == "true":
        return None
    variable, protocol = value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    problem = ""
    if exporter not in {"", "otlp", "console"}:
        problem = (
            f"{chosen}={exporter} can't be used, and no traces are sent: it must be otlp, console or none."
        )
    elif exporter != "console" and protocol not in {"", PROTOCOL}:
        problem = f"{variable}={protocol} can't be used, and no traces are sent: it must be {PROTOCOL}."
    elif not _is_installed():
        problem = (
            f"{asked} is set, and no traces are sent: OpenTelemetry is not installed. Install it with "
            f"{how_to_install('otel')}."
        )
    if problem:
        log.warning("%s", problem)
        return None
    # As OpenTelemetry reads them: an unknown sampler is parentbased_always_on, and an odd share 1.
    sampler = value("OTEL_TRACES_SAMPLER")[1]
    own = sampler.removeprefix("parentbased_")
    share = 0.0 if own == "always_off" else 1.0
    if own == "traceidratio":
        try:
            ratio = float(value("OTEL_TRACES_SAMPLER_ARG")[1])
        except ValueError:
            ratio = 1.0
        share = ratio if 0.0 <= ratio <= 1.0 else 1.0
    return TraceSampling(share, _PARENTS.get(sampler, "followed"))


def _is_installed() -> bool:
    try:
        return None not in map(find_spec, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
    except ModuleNotFoundError:
        return False


def is_divided(sampling: TraceSampling) -> bool:
    """True if nginx chooses among requests without a parent; if all or none are traced it need not."""
    return 0.0 < sampling.share < 1.0


def marked_share(sampling: TraceSampling) -> float:
    """Share of requests that nginx marks: the one asked for, but at least a hundredth of a percent."""
    return ceil(round(sampling.share * _STEPS, 6)) / _STEPS


def traceparent_pattern(flags: str = ANY_FLAGS) -> str:
    """Pattern of a ``traceparent`` (W3C Trace Context), whose ids are not 0; later versions may be longer."""
    trace_id = "(?!0{32})([0-9a-f]{32})"
    span_id = "(?!0{16})([0-9a-f]{16})"
    return rf"(?!ff|00[^ ,]{{54}})[0-9a-f]{{2}}-{trace_id}-{span_id}-{flags}(?:-[^ ,]*)?"


def header_pattern(flags: str = ANY_FLAGS) -> str:
    return f"^{traceparent_pattern(flags)}$"


def attributes_pattern(flags: str = ANY_FLAGS) -> str:
    """Pattern of a ``traceparent=`` among the custom attributes, which SageMaker lets through."""
    return attribute_pattern(TRACEPARENT, traceparent_pattern(flags))


_HEADER = re.compile(header_pattern())
_ATTRIBUTE = re.compile(attributes_pattern())


def parent_in(headers: Mapping[str, str]) -> Mapping[str, str]:
    """W3C's headers of a request's parent, among headers in lower case; a malformed one does not count.

    ``traceparent`` comes before ``traceparent=`` in the custom attributes (docs/how-to/traces.md).
    """
    if _HEADER.match(headers.get(TRACEPARENT, "")):
        return {name: headers[name] for name in (TRACEPARENT, TRACESTATE) if name in headers}
    if match := _ATTRIBUTE.match(headers.get(CUSTOM_ATTRIBUTES.lower(), "")):
        return {TRACEPARENT: "00-" + "-".join(match.groups())}
    return {}


class Outgoing:
    """Headers of the present span for a call within it; `observe.spans` gives them, once traces are on."""

    headers: Callable[[], Mapping[str, str]] = dict


OUTGOING = Outgoing()


def with_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Add the present span's headers, unless the caller names a trace itself."""
    trace = OUTGOING.headers()
    if not trace or any(name.lower() == TRACEPARENT for name in headers):
        return headers
    return {**headers, **trace}
