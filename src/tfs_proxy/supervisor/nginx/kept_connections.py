r"""The part of nginx.conf that keeps connections to the workers of models that come and go: pure.

nginx keeps connections only to the addresses of its configuration. So that names the sockets of the common
workers, and those of the first stacks by their numbers; where a gate leads tells which of them a request
takes. It leads to the same place as long as its model is loaded, but a number may come to be that of another
model while nginx waits for a request's body: workers refuse what is not for them.
"""

import re
from collections.abc import Iterator, Sequence

from tfs_proxy.supervisor.nginx import workers

STACKS, WEB_SOCKET = "s", "web.sock"
"""The folder with a folder for each stack, called by a number, and the socket in that."""

COMMON_SOCKET = "common.sock"
"""The end of the names of the sockets on which common workers accept."""

COMMON_WORKSPACES = "d"
"""The folder of links to the workspaces of models that common workers serve, by name."""

NUMBERS = range(500)
"""The stacks to which nginx keeps connections; those above are reached by new ones."""

KEPT_BY_STACK = 16
"""How many idle connections to a stack are kept."""

_NUMBER = "[0-9]{1,2}|[1-4][0-9]{2}"
KEPT, ANEW = "$kept_workers", "$workers_anew"
"""Where a request goes over a connection that may be a kept one, and over a new one in any case."""


GATE_FOLDER = "root ../$gate;"
"""For the server block, relative to nginx's prefix: it resolves links in nothing but this path."""


def upstreams(common: Sequence[str], kept: int) -> str:
    """For the http block; ``common`` are the addresses of common workers."""
    stacks = map(_stack_upstream, NUMBERS)
    return "\n    ".join((workers.upstreams(common, kept) if common else "", *stacks))


def _stack_upstream(number: int) -> str:
    address = f"unix:{STACKS}/{number}/{WEB_SOCKET}"
    return f"upstream stack{number} {{ server {address} max_fails=0; keepalive {KEPT_BY_STACK}; }}"


def maps(common: Sequence[str]) -> str:
    """For the http block: the upstream by the path that a gate resolves to.

    They are volatile, since a gate may lead elsewhere once a request has waited for its model.
    """
    socket = re.escape(WEB_SOCKET)
    return rf"""map $realpath_root $stack {{
        volatile;
        default "unix:$gate:";
        "~/{STACKS}/(?<stack_number>{_NUMBER})/{socket}\z" stack$stack_number;
    }}
    map $is_common {KEPT} {{ volatile; default $stack; {"1 web;" if common else ""} }}
    map $is_common {ANEW} {{ volatile; default "unix:$gate:"; {"1 web_anew;" if common else ""} }}"""


def choice(common: Sequence[str]) -> Iterator[str]:
    """For each location in which a request finds its gate: whether common workers are behind it."""
    yield "set $is_common 0;"
    if common:
        # PERF: one look at a folder; to resolve a gate takes one at each folder of both paths.
        yield f"if (-d {COMMON_WORKSPACES}/$model) {{ set $is_common 1; }}"
