"""Traces in headers: the parents of requests, by patterns that nginx has, too, and the headers of calls."""

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from tfs_proxy.values.attributes import attribute_pattern
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, TRACEPARENT, TRACESTATE, X_RAY

_ATTRIBUTES, _X_RAY_FIELD = CUSTOM_ATTRIBUTES.lower(), X_RAY.lower()

ANY_FLAGS, SAMPLED_FLAGS = "([0-9a-f]{2})", "([0-9a-f][13579bdf])"
EITHER, SAMPLED = "([01])", "(1)"

_LONGEST_STATE = 512


class TraceParent(Struct, frozen=True):
    """Span that a request was sent from, and its sampling; ``state`` is its tracestate."""

    trace_id: int
    span_id: int
    sampled: bool
    state: str = ""


def traceparent_pattern(flags: str = ANY_FLAGS) -> str:
    """Pattern of a ``traceparent`` (W3C Trace Context), whose ids are not 0; later versions may be longer."""
    trace_id, span_id = "(?!0{32})([0-9a-f]{32})", "(?!0{16})([0-9a-f]{16})"
    return rf"(?!ff|00[^ ,]{{54}})[0-9a-f]{{2}}-{trace_id}-{span_id}-{flags}(?:-[^ ,]*)?"


def header_pattern(flags: str = ANY_FLAGS) -> str:
    return f"^{traceparent_pattern(flags)}$"


def attributes_pattern(flags: str = ANY_FLAGS) -> str:
    """Pattern of a ``traceparent=`` among the custom attributes, which SageMaker lets through."""
    return attribute_pattern(TRACEPARENT, traceparent_pattern(flags))


def x_ray_pattern(sampled: str = EITHER) -> str:
    """Pattern of the header of AWS's load balancers and X-Ray with a span and its sampling."""
    trace_id, span_id = "(?!0{8}-0{24})([0-9a-f]{8})-([0-9a-f]{24})", "(?!0{16})([0-9a-f]{16})"
    fields = (f"Root=1-{trace_id}", f"Parent={span_id}", f"Sampled={sampled}")
    return "^" + "".join(rf"(?=(?:.*;)? *{field} *(?:;|$))" for field in fields)


_HEADER, _ATTRIBUTE, _X_RAY = map(re.compile, (header_pattern(), attributes_pattern(), x_ray_pattern()))


def parent_in(headers: Mapping[str, str]) -> TraceParent | None:
    """Parent in a request's headers, whose names are in lower case; a malformed one does not count.

    ``traceparent`` comes before ``traceparent=`` in the custom attributes, and that before
    ``X-Amzn-Trace-Id`` (docs/how-to/traces.md).
    """
    written = headers.get(TRACEPARENT)
    if written and (match := _HEADER.match(written)):
        return _parent(*match.groups(), state=headers.get(TRACESTATE, ""))
    written = headers.get(_ATTRIBUTES)
    if written and (match := _ATTRIBUTE.match(written)):
        return _parent(*match.groups())
    written = headers.get(_X_RAY_FIELD)
    if written and (match := _X_RAY.match(written)):
        epoch, unique, span_id, sampled = match.groups()
        return _parent(epoch + unique, span_id, sampled)
    return None


def _parent(trace_id: str, span_id: str, flags: str, *, state: str = "") -> TraceParent:
    short = state if len(state) <= _LONGEST_STATE else ""
    return TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & 1), short)


NO_HEADERS: Mapping[str, str] = {}


class Outgoing:
    """Headers of the present span for a call that is made within it; one object per process.

    ``inject`` gives them, once traces are on.
    """

    inject: Callable[[], Mapping[str, str]] | None = None

    def headers(self) -> Mapping[str, str]:
        """Return ``traceparent``, and ``tracestate`` if there is one."""
        return NO_HEADERS if self.inject is None else self.inject()


OUTGOING = Outgoing()


def with_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Add the present span's headers, unless the caller names a trace itself."""
    trace = OUTGOING.headers()
    if not trace or any(name.lower() == TRACEPARENT for name in headers):
        return headers
    return {**headers, **trace}
