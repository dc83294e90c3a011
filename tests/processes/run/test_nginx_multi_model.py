"""nginx in front of models that come and go: a real one, with stand-ins for the control API and for models."""

import shutil
import socket
import string
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.archives import NEEDS_NGINX
from support.ports import free_port
from support.running import LOOPBACK, Answer, RunningProcess
from support.stand_ins.unix_http import Given, Received, UnixHttpServer, unix_http_server
from support.waiting import wait_until
from tfs_proxy.observe.request_counts import FinishedRequest, read_line
from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.many_models import (
    ANY,
    GATES,
    LOADED,
    NUMBERS,
    SENDS_ON,
    SERVED,
    STACKS,
    WEB_SOCKET,
    MultiModelRoutes,
)
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance, TraceSampling
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import LOADED_MODEL_CHARACTERS, MOST_SERVED_CHARACTERS
from tfs_proxy.wire.error_body import WORKER_DIED, error_body
from tfs_proxy.wire.routes import MANY_MODELS

pytestmark = NEEDS_NGINX

WAIT_SECONDS = 30.0
MEGABYTE = 1024 * 1024
NOWHERE = Instance(0, rest_port=1, grpc_port=1, grpc_socket="")
"""A model server that can't be reached, for what passes the workers by."""

TARGET = "X-Amzn-SageMaker-Target-Model"
READY, DIED = Given(200, headers=SENDS_ON), Given(None)


class Front(RunningProcess):
    """nginx, with a control API whose answers a test chooses, and gates that it opens and closes."""

    def __init__(self, folder: Path, routes: MultiModelRoutes, environ: Mapping[str, str]) -> None:
        self.workspace = Workspace(folder)
        self.gates = folder / GATES
        self.gates.mkdir()
        self.workspace.nginx.mkdir()
        self.stack = ExitStack()
        self.control: UnixHttpServer = self.stack.enter_context(
            unix_http_server(
                self.workspace.control_socket, lambda _request: Given(404, error_body("unknown"))
            )
        )
        port = free_port()
        proxy = config.ProxyConfig(
            f"{LOOPBACK}:{port}",
            (),
            self.workspace.control_socket,
            kind=MANY_MODELS,
            multi_model=routes,
            free_bytes=2**33,
        )
        conf = self.workspace.nginx / "nginx.conf"
        conf.write_text(config.config(proxy, Settings.from_env(environ), self.workspace))
        home = str(self.workspace.nginx)
        super().__init__([config.find() or "", "-p", home, "-c", str(conf), "-e", "stderr"], port=port)

    def is_ready(self) -> bool:
        """Whether nginx accepts connections."""
        try:
            return self.ask("GET", "/nowhere").status == 404
        except OSError:
            return False

    def model(self, name: str, *given: Given) -> UnixHttpServer:
        """A model whose gate is open; it gives these answers in turn, and the last one from then on."""
        answers = list(given)

        def respond(_request: Received) -> Given:
            return answers.pop(0) if len(answers) > 1 else answers[0]

        return self._serve(name, self.workspace.root / f"{name}.sock", respond)

    def numbered_model(self, name: str, number: int, given: Given) -> UnixHttpServer:
        """A model whose gate leads to the stack of a number."""
        path = self.workspace.root / STACKS / str(number) / WEB_SOCKET
        path.parent.mkdir(parents=True)
        return self._serve(name, path, lambda _request: given)

    def _serve(self, name: str, path: Path, respond: Callable[[Received], Given]) -> UnixHttpServer:
        server = self.stack.enter_context(unix_http_server(path, respond))
        for ending in (LOADED, SERVED, ANY):
            (self.gates / f"{name}.{ending}").symlink_to(path)
        return server

    def invoke_model(
        self, name: str, body: bytes = b"{}", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """POST /models/NAME/invoke."""
        return self.ask("POST", f"/models/{name}/invoke", body, headers)

    def requests(self, count: int) -> list[FinishedRequest]:
        """What it has written of its requests, the first one apart, which asks whether it is there."""

        def written() -> list[bytes]:
            lines = self.workspace.requests.read_bytes().splitlines()
            return [line.rpartition(b'" ')[2] for line in lines if not line.endswith(b"/nowhere HTTP/1.1")]

        wait_until(lambda: len(written()) >= count, WAIT_SECONDS, f"{count} requests have lines")
        return [request for line in written() if (request := read_line(line)) is not None]

    def close(self) -> None:
        """Leave nothing behind."""
        super().close()
        self.stack.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A workspace whose path is short."""
    with tempfile.TemporaryDirectory(prefix="tp-") as path:
        yield Path(path)


@pytest.fixture
def front(folder: Path) -> Iterator[Front]:
    """nginx of a run that understands Target-Model."""
    yield from running(folder, MultiModelRoutes(600, (NOWHERE,), takes_target_model=True))


def running(folder: Path, routes: MultiModelRoutes, environ: Mapping[str, str] = {}) -> Iterator[Front]:
    """nginx, until the test's end."""
    front = Front(folder, routes, environ)
    try:
        front.wait_ready()
        yield front
    finally:
        front.close()


def mark_of(request: Received) -> str:
    """What nginx says of an earlier try."""
    _, _, mark = f"{request.headers['x-tfs-proxy-request']} ".split(" ", 2)
    return mark.strip()


def test_connections_to_a_stack_are_kept(front: Front) -> None:
    """Those to a stack whose number nginx does not know are not, and each model gets its own requests."""
    first, second, far = (
        front.numbered_model(name, number, Given(200, name.encode()))
        for name, number in (("a", 0), ("b", 17), ("c", NUMBERS.stop))
    )

    answers = [front.invoke_model(name).body for _ in range(5) for name in "abc"]

    assert answers == [b"a", b"b", b"c"] * 5
    assert (first.connections, second.connections, far.connections) == (1, 1, 5)


def test_the_number_of_a_stack_may_become_that_of_another_model(front: Front) -> None:
    """Its requests reach that model, and those for the former one wait for it."""
    before = front.numbered_model("a", 3, Given(200, b"before", {"Connection": "close"}))
    assert front.invoke_model("a").body == b"before"
    gate = front.gates / "a.sock"
    before.close()
    shutil.rmtree(gate.readlink().parent)
    gate.unlink()

    front.numbered_model("b", 3, Given(200, b"after"))

    assert front.invoke_model("b").body == b"after"
    assert front.invoke_model("a").status == 404


@pytest.mark.parametrize("behind", ["no gate", "nobody", "a full queue"])
def test_a_model_that_is_ready_and_can_not_be_reached_is_not_available(front: Front, behind: str) -> None:
    """It is asked for once, and not for ever; nobody waits for a connection that the kernel does not take."""
    front.control.respond = lambda _request: READY
    with ExitStack() as stack:
        if behind != "no gate":
            front.model("a", Given()).close()
        if behind == "a full queue":
            (path := front.workspace.root / "a.sock").unlink()
            listener, waiting = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
            listener.bind(str(path))
            listener.listen(0)
            waiting.connect(str(path))

        answer = front.invoke_model("a")

    assert (answer.status, "try again" in answer.json["error"]) == (503, True)
    assert len(front.control.received) == 1


@pytest.mark.parametrize(
    "path", ["/models/a/invoke", "/invocations", "/v1/models/a", "/v1/models/a:predict", "/v2/models/a/infer"]
)
def test_options_load_no_model(front: Front, path: str) -> None:
    """A loaded model answers as ever; for another one nginx does, if no model server can."""
    answer = front.ask("OPTIONS", path, headers={TARGET: "a.tar.gz"})
    assert (answer.status, answer.headers["allow"]) == (200, "GET, HEAD" if path.endswith("/a") else "POST")
    front.model("a", Given(200, b"own"))
    assert front.ask("OPTIONS", path, headers={TARGET: "a.tar.gz"}).body == b"own"
    assert front.control.received == []


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_request_whose_worker_died_goes_to_the_next_one_with_a_mark(front: Front, is_loaded: bool) -> None:
    """By which, and by the id, the next one knows whether the request had begun; also after a wait for the model."""
    models: list[UnixHttpServer] = []

    def load(_request: Received | None = None) -> Given:
        models.append(front.model("a", DIED, Given(200, b'"next"', {"X-Own": "kept"})))
        return READY

    front.control.respond = load
    if is_loaded:
        load()
    answer = front.invoke_model("a", b"[1]")

    assert (answer.status, answer.body, answer.headers["x-own"]) == (200, b'"next"', "kept")
    assert not set(SENDS_ON) & {name.title() for name in answer.headers}
    first, second = models[0].received
    assert (first.target, first.body) == (second.target, second.body) == ("/invocations", b"[1]")
    assert [mark_of(request) for request in (first, second)] == ["", "again"]
    ids = [request.headers["x-tfs-proxy-request"].partition(" ")[0] for request in (first, second)]
    assert ids[0] == ids[1]
    assert [request.target for request in front.control.received] == (
        [] if is_loaded else ["/models/a/ready"]
    )


@pytest.mark.parametrize(("ends_the_model", "tries"), [(False, 2), (True, 1)])
def test_a_request_that_ends_two_workers_or_the_model_goes_to_no_other(
    front: Front, ends_the_model: bool, tries: int
) -> None:
    """The client hears that it may be the cause; a whole model's notes have gone, too, of what had begun."""
    a = front.model("a", DIED)

    def die(_request: Received) -> Given:
        if ends_the_model:
            (front.gates / "a.sock").unlink()
        return DIED

    a.respond = die
    front.control.respond = lambda _request: READY

    answer = front.invoke_model("a")

    assert (answer.status, answer.json["error"]) == (502, WORKER_DIED)
    assert (len(a.received), front.control.received) == (tries, [])


def test_a_script_leads_nowhere_else(front: Front) -> None:
    """The header that sends a request on is the control API's alone."""
    front.model("a", Given(200, b'"a"', SENDS_ON))

    assert front.invoke_model("a").body == b'"a"'


def test_a_request_to_models_is_small(front: Front) -> None:
    """The limit is not that of payloads, and the sentence says so."""
    answer = front.ask("POST", "/models", b" " * (64 * 1024 + 1))

    assert (answer.status, "64 KB" in answer.json["error"]) == (413, True)
    assert front.ask("POST", "/models/a/invoke", b" " * (64 * 1024 + 1)).status == 404
    assert [request.target for request in front.control.received] == ["/models/a/ready"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/models"), ("DELETE", "/models/a")])
def test_a_client_that_hangs_up_stops_neither_load_nor_unload(front: Front, method: str, path: str) -> None:
    """nginx waits for the answer in its place."""
    begun, may_end = threading.Event(), threading.Event()

    def hold(_request: Received) -> Given:
        begun.set()
        assert may_end.wait(WAIT_SECONDS)
        return Given(200)

    front.control.respond = hold
    with socket.create_connection((LOOPBACK, front.port)) as client:
        client.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert begun.wait(WAIT_SECONDS)
    assert front.ask("GET", "/elsewhere").status == 404  # nginx has seen the end of the other connection
    may_end.set()

    assert [(request.target, request.status) for request in front.requests(2)] == [
        ("/elsewhere", 404),
        (path, 200),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/v2//",
        "//models",
        "/models/",
        "/models/a/",
        "/models/a/b",
        "/models//a",
        "/models/a/ready",
        "/models/a/invoke/",
        "/models/a/invoke%0a",
        "/models/a%0a",
        "/models/.a/invoke",
        "/models/-a",
        "/models/a%2fb/invoke",
        "/models/%2e%2e/invoke",
        f"/models/{'a' * 65}",
        f"/models/{'a' * 65}/invoke",
        "/Models",
        "/models/a:b/invoke",
        "/models/a$b/invoke",
        "/v1",
        "/v1/",
        "/v2/health/dead",
        "/v2/repository/index",
        "/v2/repository/models/a/load",
        "/v2/systemsharedmemory/status",
        "/v2/models/a/%2e%2e/%2e%2e/b",
        "/v1/models/",
        "/v1/models//a",
        f"/v1/models/{'a' * (MOST_SERVED_CHARACTERS + 1)}:predict",
        "/execution-parameters",
        "/invocations/",
        "/tensorflow.serving.PredictionService/Predict",
        "/control_api",
        "/metrics/",
    ],
)
def test_other_paths_are_not_found(front: Front, path: str) -> None:
    """In JSON, and without a question to the control API."""
    front.control.respond = lambda _request: READY
    for method in ("GET", "POST"):
        answer = front.ask(method, path)

        assert (answer.status, set(answer.json)) == (404, {"error"}), answer.body
        assert answer.headers["content-type"] == "application/json"
    assert front.control.received == []


def test_below_a_closed_door_nothing_is_loaded(folder: Path) -> None:
    for front in running(folder, MultiModelRoutes(600, (NOWHERE,)), {"TFS_PROXY_DOORS": "page"}):
        assert front.ask("GET", "/v1/models/a/metadata").status == 404
        assert not front.control.received


SEGMENT = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
ODD = st.text(st.sampled_from("a.-_/ %~:$'\"\\\x7f\xe9AZ09"), max_size=80)
TARGETS = st.one_of(
    st.lists(SEGMENT, max_size=8).map("/".join),
    ODD,
    st.tuples(ODD, SEGMENT).map("".join),
    st.integers(60, 70).map(lambda length: "a" * length),
    st.integers(50, 70).map(lambda length: "b/" + "a" * length),
)


def model_of_target(target: str) -> str | None:
    """The rule in plain code: the name of the model, None if the path is odd; one leading slash is dropped."""
    if not target.endswith(".tar.gz"):
        return None
    segments = target.removesuffix(".tar.gz").removeprefix("/").split("/")
    plain = string.ascii_letters + string.digits
    for segment in segments:
        if not segment or segment[0] not in plain or set(segment) - set(f"{plain}._-"):
            return None
    name = "--".join(segments)
    return name if len(segments) <= 6 and len(name) <= LOADED_MODEL_CHARACTERS else None


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TARGETS, st.sampled_from([".tar.gz", ".tar.gz", ".tar.gz", ".tar", ""]))
@example("team/a", ".tar.gz")
@example("../a", ".tar.gz")
@example("/a", ".tar.gz")
@example("a.tar.gz", ".tar.gz")
@example("1/2/3/4/5/6", ".tar.gz")
@example("1/2/3/4/5/6/7", ".tar.gz")
def test_a_target_model_is_a_path_of_plain_names(front: Front, path: str, suffix: str) -> None:
    """What nginx makes of it is the model's name, or 400 with a sentence; an empty header is none."""
    target = (path + suffix).strip()
    front.control.respond = lambda request: Given(404, request.target.encode())

    answer = front.ask("POST", "/invocations", b"{}", {TARGET: target})

    name = model_of_target(target)
    if name is not None:
        assert (answer.status, answer.body.decode()) == (404, f"/models/{name}/ready")
    elif target:
        assert (answer.status, answer.json["error"].startswith(f"{TARGET}: the path of an")) == (400, True)
    else:
        assert "/models/NAME/invoke" in answer.json["error"]


def test_each_request_has_a_line_with_the_model_that_it_names(front: Front) -> None:
    """Whatever becomes of it; what is not a name is no name."""
    front.model("a", Given(200))
    version = {"X-Amzn-SageMaker-Custom-Attributes": "tfs-model-version=3"}
    front.invoke_model("a", headers=version)
    front.invoke_model("b")
    front.invoke_model("a", b" " * (2 * MEGABYTE))
    front.invoke("{}", **{TARGET: "team/c.tar.gz"})
    front.invoke("{}", **{TARGET: "../c.tar.gz"})
    front.invoke("{}")
    front.ask("POST", "/v1/models/a:predict", b"{}")
    front.ask("GET", "/models/a")
    front.ask("POST", "/models/a/b/invoke")

    lines = front.requests(9)

    assert [(line.method, line.target, line.status, line.model, line.version) for line in lines] == [
        ("POST", "/models/a/invoke", 200, "a", "3"),
        ("POST", "/models/b/invoke", 404, "b", ""),
        ("POST", "/models/a/invoke", 200, "a", ""),
        ("POST", "/invocations", 404, "team--c", ""),
        ("POST", "/invocations", 400, "?", ""),
        ("POST", "/invocations", 404, "", ""),
        ("POST", "/v1/models/a:predict", 200, "a", ""),
        ("GET", "/models/a", 404, "", ""),
        ("POST", "/models/a/b/invoke", 404, "", ""),
    ]


@pytest.mark.parametrize("traces", [None, TraceSampling(0.25)])
def test_workers_are_told_what_else_to_do(folder: Path, traces: TraceSampling | None) -> None:
    """Marks that a client sets itself never arrive."""
    routes = MultiModelRoutes(600, (NOWHERE,), traces is None, traces)
    sent = {"X-Tfs-Proxy-Request": "client", "traceparent": "client"}
    if traces is None:
        del sent["traceparent"]
    for front in running(folder, routes):
        a = front.model("a", Given())

        assert front.invoke_model("a", headers=sent).status == 200
        assert "client" not in a.received[0].headers.values()
