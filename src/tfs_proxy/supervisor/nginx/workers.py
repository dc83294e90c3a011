"""The parts of nginx.conf that send requests to the workers, and once more if a worker dies: pure."""

from collections.abc import Iterable, Sequence

from tfs_proxy.observe.routes import INVOCATIONS
from tfs_proxy.wire.header_names import HAD_MODEL_SERVER, NGINX_ID, REQUEST_ID, SENT_AGAIN

PROXY_HEADERS = (
    'proxy_set_header Connection "";',
    "proxy_set_header Host $http_host;",
    f"proxy_set_header {REQUEST_ID} $chosen_id;",
)

ZONE_SIZE = "256k"
AGAIN = "= @again"
"""Where an ``error_page`` of 502 leads."""


def upstreams(addresses: Sequence[str], kept: int) -> str:
    """The workers' sockets, for the http block: with ``kept`` connections a process, and with new ones.

    All processes of nginx share the zones, and with them the numbers of requests that a socket has.
    """
    servers = "\n        ".join(f"server {address} max_fails=0;" for address in addresses)
    return f"""upstream web {{
        zone web {ZONE_SIZE};
        least_conn;
        {servers}
        keepalive {kept};
        keepalive_requests 1000000;
        keepalive_timeout 60s;
    }}

    # New connections, each to a socket that outlives its worker: a worker that accepts is alive.
    upstream web_anew {{
        zone web_anew {ZONE_SIZE};
        least_conn;
        {servers}
    }}"""


def locations(entrance: str, marks: Sequence[str]) -> str:
    """For the server block, in which all but the probes goes to the workers of one archive.

    ``entrance`` may take requests to ``/invocations`` elsewhere.
    """
    to_workers = directives("web", marks)
    return f"""location = {INVOCATIONS} {{
            {entrance}
            {to_workers}
        }}

        location / {{
            {to_workers}
        }}

        location @python {{
            {to_workers}
        }}

        # The connection to the model server ended without an answer.
        location @python_after {{
            {directives("web", marks, sent="1")}
        }}

        # The connection to a worker ended without an answer: another one knows whether it had begun.
        location @again {{
            {directives("web_anew", marks, again="1")}
        }}"""


def directives(address: str, marks: Iterable[str], again: str = "", sent: str = "") -> str:
    """Sends a request to the workers, with the id under which they note that they begin it.

    ``marks`` are headers that say what else they do with it.
    """
    lines = (
        f"proxy_pass http://{address};",
        "proxy_next_upstream off;",
        # NOTE: headers of a location's own hide those of the server block, so they are repeated.
        *PROXY_HEADERS,
        f'proxy_set_header {NGINX_ID} "$request_id $msec";',
        f'proxy_set_header {SENT_AGAIN} "{again}";',
        f'proxy_set_header {HAD_MODEL_SERVER} "{sent}";',
        *marks,
    )
    return "\n            ".join(lines)
