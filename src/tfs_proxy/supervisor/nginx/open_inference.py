"""The parts of nginx.conf that lead requests of KServe's and Triton's clients to the control API: pure.

It knows the server, its repository and its statistics; what is about one model goes to the model's workers.
"""

from collections.abc import Iterator

from tfs_proxy.names import MODEL
from tfs_proxy.observe.routes import SERVED_MODELS, SERVER, SHARED_MEMORY
from tfs_proxy.supervisor.nginx import refusals, workers

MAX_REQUEST_KB = 64
"""The largest body of a request that the control API reads."""

TOO_LARGE = "/.refused/control-413"
STATUS_OF_MODEL = f"^{SERVED_MODELS}/[^/:]+\\z"
"""TF Serving's path of a model's status, to whose answer workers add what KServe's clients look for."""

_PROBE_SECONDS, _ANSWER_SECONDS = 2, 10


def locations() -> Iterator[str]:
    """For the server block: the server's metadata, health and statistics, and no shared memory."""
    yield control_api(f'~ "^{SERVER}/health/(?:live|ready)\\z"', _PROBE_SECONDS)
    yield control_api(f'~ "^{SERVER}/models/(?:[^/]+/(?:versions/[^/]+/)?)?stats\\z"')
    yield control_api(f'~ "^{SERVER}/?\\z"')
    yield control_api(f'~ "^{SHARED_MEMORY}\\z"')


def repository(model: str = MODEL) -> str:
    """nginx's pattern of the repository's paths, which leaves ``$repository_path``; ``model`` is a name's."""
    return f'~ "^{SERVER}/repository/(?<repository_path>index|models/{model}/(?:load|unload))\\z"'


def of_one_archive() -> Iterator[str]:
    """For the server block of one archive: the same, and its repository, where nothing takes long."""
    yield from locations()
    lines = (
        f"proxy_pass http://control_api{SERVER}/repository/$repository_path;",
        f"client_max_body_size {MAX_REQUEST_KB}k;",
        f"proxy_read_timeout {_ANSWER_SECONDS}s;",
        *refusals.error_pages({413: TOO_LARGE, 502: workers.AGAIN}),
    )
    yield location(repository(), *lines)
    yield too_large()


def control_api(pattern: str, seconds: int = _ANSWER_SECONDS) -> str:
    """A location whose requests have no body, and are answered by the control API within this time.

    The rewrite has nginx pass on the path that it matched, encoded anew, instead of the client's own.
    """
    return location(
        pattern,
        "rewrite ^ $uri break;",
        "proxy_pass http://control_api;",
        "proxy_pass_request_body off;",
        'proxy_set_header Content-Length "";',
        'proxy_set_header Connection "";',
        f"proxy_read_timeout {seconds}s;",
    )


def too_large() -> str:
    """The refusal of a body, once for the server block."""
    name = TOO_LARGE.rpartition("/")[2]
    text = f"the body is larger than {MAX_REQUEST_KB} KB, the limit of requests to this path"
    return refusals.location(name, 413, text)


def location(pattern: str, *lines: str) -> str:
    """A location with these directives."""
    return f"location {pattern} {{\n            " + "\n            ".join(lines) + "\n        }"
