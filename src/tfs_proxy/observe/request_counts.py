"""Counts of requests, from the lines that nginx, or the workers without it, write at the end of each.

A line is ``STATUS SECONDS GRPC_STATUS MODEL VERSION BYTES_IN BYTES_OUT REQUEST_LINE``, with ``-`` for
unknown values; `NGINX_FORMAT` and `request_line` write it. Behind `LOGGED` and words in quotes, which
`observe.logs.access` reads, it is the line of a request for the log.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from http import HTTPStatus

from msgspec import Struct

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Histogram, Labels, MeasuredMetric
from tfs_proxy.wire import routes
from tfs_proxy.wire.error_status import CLIENT_GONE
from tfs_proxy.wire.grpc_codes import HTTP_STATUS

NGINX_FORMAT = "$status $request_time - $asked_model $asked_version $request_length $bytes_sent $request"
"""Format of nginx's lines, with the whole request line, since an error page makes GET of the method alone."""

NGINX_GRPC_FORMAT = "$status $request_time $sent_trailer_grpc_status$sent_http_grpc_status - - 0 0 $request"
"""Format for calls; nginx writes ``-`` for an empty variable, so it stands next to the status that is set."""

LOGGED = b"@"
SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OTHER = "other"
LATEST = "latest"
"""Labels for a model or version that is not of this run, and for the version of a request that names none."""

OK = "ok"
_OUTCOMES: Mapping[int, str] = {
    CLIENT_GONE: "client_gone",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout",
}

_WORD = "[!-~]{1,255}"
_LINE = re.compile(
    rf"([0-9]{{3}}) ([0-9]{{1,9}}\.[0-9]{{1,9}}) -?([0-9]{{0,3}})-? ({_WORD}) ({_WORD}) "
    "([0-9]{1,19}) ([0-9]{1,19}) ([ -~]*)".encode()
)
_READABLE_WORD = re.compile(_WORD)
_UNKNOWN = "-"
_UNREADABLE = "?"
_UNKNOWN_GRPC_STATUS = "other"
_MOST_GRPC_STATUS = 16


class FinishedRequest(Struct, frozen=True):
    """One request that has been answered, or whose client has gone."""

    method: str
    """Method of HTTP as it was sent."""

    status: int
    """HTTP status of the answer."""

    seconds: float
    """Time that it took."""

    target: str
    """Path with its query, as it was sent."""

    grpc_status: str = ""
    """Number of the gRPC status; "" for HTTP."""

    model: str = ""
    """Name of the model that it asks for; "" if it names none."""

    version: str = ""
    """Version or label that it asks for; "" if it names none."""

    bytes_in: int = 0
    """Size of the request in bytes."""

    bytes_out: int = 0
    """Size of the answer in bytes."""

    reason: str = ""
    """Reason why it failed; "" if it did not, or if that is not known."""


def request_line(request: FinishedRequest) -> bytes:
    """Write the line of a request, with its end."""
    line = f"{request.method} {routes.path_of(request.target)}"
    readable = line if line.isascii() and line.isprintable() else "-"
    asked = f"{_word(request.model)} {_word(request.version)}"
    sizes = f"{request.bytes_in} {request.bytes_out}"
    grpc_status = request.grpc_status or _UNKNOWN
    return f"{request.status:03} {request.seconds:.6f} {grpc_status} {asked} {sizes} {readable}\n".encode()


def read_line(line: bytes) -> FinishedRequest | None:
    """Read a line of `request_line` or nginx; None if it can't be read."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    status, seconds, grpc_status, model, version, bytes_in, bytes_out, request = (
        match[0].decode().split(" ", 7)
    )
    method, _, target = request.partition(" ")
    return FinishedRequest(
        method,
        int(status),
        float(seconds),
        target.partition(" ")[0],
        grpc_status.strip("-"),
        model.removeprefix(_UNKNOWN),
        version.removeprefix(_UNKNOWN),
        int(bytes_in),
        int(bytes_out),
    )


def _word(text: str) -> str:
    if not text:
        return _UNKNOWN
    return text if _READABLE_WORD.fullmatch(text) else _UNREADABLE


class KnownModels:
    """Models of this run, and their ``versions`` as text: the only values that labels take.

    Without a ``default_model`` a request that names none is for a model that is not of this run.
    """

    def __init__(self, default_model: str | None, models: Mapping[str, Collection[int]]) -> None:
        self.default_model = default_model
        self.versions: dict[str, Collection[str]] = {} if default_model is None else {default_model: ()}
        for name, versions in models.items():
            self.add(name, versions)

    def add(self, model: str, versions: Collection[int]) -> None:
        """Add a model of the run, in place of one of that name."""
        self.versions[model] = {str(version) for version in versions}

    def labels(self, model: str, version: str) -> tuple[str, str]:
        """Labels for the model and version of a request; "" stands for one that it does not name."""
        name = model or self.default_model or ""
        versions = self.versions.get(name)
        if versions is None:
            return OTHER, OTHER
        number = version.lstrip("0") or version
        if not version:
            return name, LATEST
        return name, number if number in versions else OTHER


class ModelCounts:
    """Counts of requests by model; they only grow, as long as the model is one of the run."""

    def __init__(self, known: KnownModels) -> None:
        self.known = known
        self._outcomes: Counter[Labels] = Counter()
        self._seconds = Histogram(SECONDS_BOUNDS)
        self._bytes_in: Counter[Labels] = Counter()
        self._bytes_out: Counter[Labels] = Counter()

    def add(self, asked: tuple[str, str], request: FinishedRequest, times: int) -> None:
        """Count a request for a model and version, ``times`` over."""
        labels = self.known.labels(*asked)
        outcome = outcome_of(request)
        self._outcomes[*labels, outcome] += times
        self._seconds.add(labels, request.seconds, times)
        self._bytes_in[labels] += request.bytes_in * times
        self._bytes_out[labels] += request.bytes_out * times

    def set_models(self, known: KnownModels) -> Collection[str]:
        """Take over the models of the run; those that have gone are forgotten, and returned."""
        gone = self.known.versions.keys() - known.versions.keys()
        for model in gone:
            self.remove_model(model)
        self.known = known
        return gone

    def requests_of(self, model: str) -> int:
        """Number of requests for a model."""
        return sum(times for labels, times in self._outcomes.items() if labels[0] == model)

    def remove_model(self, model: str) -> None:
        """Forget a model that has gone: clients that load ever new ones must not make ever more series."""
        self.known.versions.pop(model, None)
        self._seconds.forget(model)
        for counts in (self._outcomes, self._bytes_in, self._bytes_out):
            for labels in [labels for labels in counts if labels[0] == model]:
                del counts[labels]

    def measure(self) -> Iterator[MeasuredMetric]:
        yield MeasuredMetric(catalogue.MODEL_REQUESTS, dict(self._outcomes))
        yield MeasuredMetric(catalogue.MODEL_REQUEST_DURATION, distributions=self._seconds.distributions())
        yield MeasuredMetric(catalogue.REQUEST_BYTES, dict(self._bytes_in))
        yield MeasuredMetric(catalogue.RESPONSE_BYTES, dict(self._bytes_out))


class RequestCounts:
    """Counts of all requests of a run by route, method and status; they only grow.

    ``models`` counts those for a model as well, once the models are known.
    """

    def __init__(self) -> None:
        self.models: ModelCounts | None = None
        self._seconds = Histogram(SECONDS_BOUNDS)
        self._probes: Counter[Labels] = Counter()
        self._grpc: Counter[Labels] = Counter()
        self._unreadable = 0

    def set_models(self, known: KnownModels) -> Collection[str]:
        """Count requests by model, too, from now on; returns the models that have gone."""
        if self.models is not None:
            return self.models.set_models(known)
        self.models = ModelCounts(known)
        return ()

    def add_lines(self, lines: bytes) -> list[bytes]:
        """Count every line of ``lines``, malformed ones included; return those that are for the log, too."""
        logged = []
        # Most lines of a busy moment are equal, and each different one is read once.
        for line, times in Counter(lines.split(b"\n")).items():
            if not line:
                continue
            is_logged = line.startswith(LOGGED)
            if is_logged:
                logged.append(line)
            request = read_line(line.rpartition(b'" ')[2] if is_logged else line)
            if request is None:
                self._unreadable += times
            else:
                self.add(request, times)
        return logged

    def add(self, request: FinishedRequest, times: int = 1) -> None:
        path = routes.path_of(request.target)
        status = routes.status_of(request.status)
        if path in routes.PROBES:
            self._probes[path, status] += times
            return
        labels = (routes.route_of(path), routes.method_of(request.method), status)
        self._seconds.add(labels, request.seconds, times)
        if self.models is not None:
            asked = routes.model_of(path, (request.model, request.version))
            # Only /invocations needs no name.
            if asked is not None and (path == routes.INVOCATIONS.path or asked[0]):
                self.models.add(asked, request, times)
        if request.grpc_status:
            known = int(request.grpc_status) <= _MOST_GRPC_STATUS
            self._grpc[labels[0], request.grpc_status if known else _UNKNOWN_GRPC_STATUS] += times

    def measure(self) -> Iterator[MeasuredMetric]:
        yield MeasuredMetric(catalogue.REQUEST_DURATION, distributions=self._seconds.distributions())
        if self.models is not None:
            yield from self.models.measure()
        yield MeasuredMetric(catalogue.PROBE_REQUESTS, dict(self._probes))
        yield MeasuredMetric(catalogue.GRPC_REQUESTS, dict(self._grpc))
        yield MeasuredMetric(catalogue.UNREADABLE_LINES, {(): self._unreadable})


def outcome_of(request: FinishedRequest) -> str:
    """Describe how a request ended in a word; every call of gRPC has 200 in HTTP."""
    status = request.status
    if request.grpc_status:
        status = HTTP_STATUS.get(int(request.grpc_status), status)
    if status in _OUTCOMES:
        return _OUTCOMES[status]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status < HTTPStatus.CONTINUE:
        return "server_error"
    return "client_error" if status >= HTTPStatus.BAD_REQUEST else OK
