"""The part of nginx.conf that sends traced requests through Python, whose spans they need: pure.

nginx reads the parent of a request by the patterns by which Python does, and takes a share of the requests
that have none. It marks those, so that Python takes no share of a share.
"""

from collections.abc import Callable

from tfs_proxy.deployment import TraceSampling
from tfs_proxy.observe.tracing import parents
from tfs_proxy.observe.tracing.choice import MARKED, NOT_MARKED, is_divided, marked_share
from tfs_proxy.observe.tracing.parents import ANY_FLAGS, EITHER, SAMPLED, SAMPLED_FLAGS
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, IS_SAMPLED, TRACEPARENT, X_RAY, nginx_variable

DRAWN_BY = "$request_id"
"""What nginx takes shares of requests by, for traces and for capture: the smaller lies in the larger one."""


def maps(sampling: TraceSampling) -> str:
    """``$traced`` is 1 for requests that Python has to see, 0 for others; for the http block."""
    lines = [
        _share(sampling),
        *_parents(sampling),
        f"map {nginx_variable(TRACEPARENT)} $valid_traceparent {{",
        f'    default ""; "~{parents.header_pattern()}" {nginx_variable(TRACEPARENT)};',
        "}",
    ]
    return "\n    ".join(lines)


def untraced(sampling: TraceSampling | None) -> str:
    """What stands before a map's key so that traced requests fall out of it; see `fast_path.maps`."""
    return "$if_traced" if sampling else ""


def to_python(sampling: TraceSampling | None, status: int) -> str:
    """Takes traced requests out of a location, by the status that leads to Python."""
    return f"if ($traced) {{ return {status}; }}" if sampling else ""


def headers(sampling: TraceSampling | None) -> tuple[str, ...]:
    """Nobody behind nginx sees a malformed ``traceparent``, or a mark that a client has set."""
    if sampling is None:
        return ()
    mark = "$trace_share" if is_divided(sampling) else '""'
    return (f"proxy_set_header {TRACEPARENT} $valid_traceparent;", f"proxy_set_header {IS_SAMPLED} {mark};")


def _share(sampling: TraceSampling) -> str:
    if is_divided(sampling):
        percent = f"{100 * marked_share(sampling):.2f}%"
        return f'split_clients "{DRAWN_BY}" $trace_share {{ {percent} {MARKED}; * {NOT_MARKED}; }}'
    return f'map "" $trace_share {{ default {MARKED if sampling.share else NOT_MARKED}; }}'


def _parents(sampling: TraceSampling) -> list[str]:
    """A map for each carrier, which leaves what has no parent to the map above it."""
    if_traced = 'map $traced $if_traced { default ""; 1 "traced "; }'
    if sampling.parents == "ignored":
        return ["map $trace_share $traced { default $trace_share; }", if_traced]
    carriers: tuple[tuple[str, str, Callable[[str], str], tuple[str, str]], ...] = (
        (X_RAY, "$traced_by_x_ray", parents.x_ray_pattern, (SAMPLED, EITHER)),
        (
            CUSTOM_ATTRIBUTES,
            "$traced_by_attributes",
            parents.attributes_pattern,
            (SAMPLED_FLAGS, ANY_FLAGS),
        ),
        (TRACEPARENT, "$traced", parents.header_pattern, (SAMPLED_FLAGS, ANY_FLAGS)),
    )
    unsampled = MARKED if sampling.parents == "examined" else NOT_MARKED
    lines, otherwise = [], "$trace_share"
    for header, variable, pattern, (sampled, either) in carriers:
        lines.append(
            f"map {nginx_variable(header)} {variable} {{ default {otherwise}; "
            f'"~{pattern(sampled)}" {MARKED}; "~{pattern(either)}" {unsampled}; }}'
        )
        otherwise = variable
    return [*lines, if_traced]
